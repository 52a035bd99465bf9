"""Masking of secrets: known key shapes, and the values of secret environment variables.

It stands at three entrances (tool results, prompts, errors) and in the stream of the answer. In the stream only known values are looked
for, and text is held back only while its tail may begin one. Large text is masked in chunks, so that no step holds the GIL for long.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

MASK = "[masked]"
CHUNK = 1 << 20  # characters masked in one go: about 3 ms of the GIL
MIN_SECRET = 8  # shorter values stand in ordinary text by chance
_REACH = 16_384  # a chunk grows at most this far to end outside a key block

_SECRET_NAME = re.compile(
    r"(?:^|_)(?:API_?KEY|KEY|TOKEN|SECRET|PASSWORD|PASSWD|PWD|CREDENTIALS?|PASSPHRASE)(?:_|$)|(?:APIKEY|TOKEN|SECRET|PASSWORD)$", re.IGNORECASE
)
_NO_SECRET = re.compile(r"(?:[/~.]|[A-Za-z]:\\).*|true|false|https?://[^@]*", re.IGNORECASE | re.DOTALL)

# What a key looks like, beside a literal that every such key holds: the literal is looked for first, because that is a hundred times cheaper.
# A pattern begins with its literal (the look-behind stands after it), which lets re search for the literal too.
# Shapes: OpenAI, Anthropic and relatives; AWS; GitHub; GitLab; Slack; Google; Hugging Face; npm; Stripe; JSON Web Token; PEM.
_SHAPES: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("sk-", re.compile(r"sk-(?<![A-Za-z0-9]sk-)[A-Za-z0-9_-]{16,}")),
    ("AKIA", re.compile(r"AKIA(?<![A-Za-z0-9]AKIA)[0-9A-Z]{16}(?![0-9A-Za-z])")),
    ("ASIA", re.compile(r"ASIA(?<![A-Za-z0-9]ASIA)[0-9A-Z]{16}(?![0-9A-Za-z])")),
    ("gh", re.compile(r"gh(?<![A-Za-z0-9]gh)[pousr]_[A-Za-z0-9]{30,}")),
    ("github_pat_", re.compile(r"github_pat_[A-Za-z0-9_]{30,}")),
    ("glpat-", re.compile(r"glpat-[A-Za-z0-9_-]{20,}")),
    ("xox", re.compile(r"xox(?<![A-Za-z0-9]xox)[abeoprs]-[A-Za-z0-9-]{10,}")),
    ("AIza", re.compile(r"AIza(?<![A-Za-z0-9]AIza)[A-Za-z0-9_-]{35}")),
    ("hf_", re.compile(r"hf_(?<![A-Za-z0-9]hf_)[A-Za-z0-9]{30,}")),
    ("npm_", re.compile(r"npm_(?<![A-Za-z0-9]npm_)[A-Za-z0-9]{36}")),
    ("sk_live_", re.compile(r"sk_live_(?<![A-Za-z0-9]sk_live_)[A-Za-z0-9]{16,}")),
    ("eyJ", re.compile(r"eyJ(?<![A-Za-z0-9]eyJ)[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}")),
    ("PRIVATE KEY", re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)")),
)


def secret_values(environment: Mapping[str, str]) -> frozenset[str]:
    """Return the values of variables whose names speak of secrets; paths, flags and plain addresses are none."""
    return frozenset(
        value.strip()
        for name, value in environment.items()
        if len(value.strip()) >= MIN_SECRET and _SECRET_NAME.search(name) and not _NO_SECRET.fullmatch(value.strip())
    )


class Redactor:
    """Masks one set of secrets; immutable, for any thread."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        """Keep the values that are long enough to be secrets, the longest first."""
        self._secrets = sorted((value for value in set(secrets) if len(value) >= MIN_SECRET), key=lambda value: (-len(value), value))

    def text(self, text: str) -> str:
        """Return the text with known values and key shapes masked."""
        if len(text) <= CHUNK:
            return self._shapes(self.values(text))
        changed, masked = False, []
        for piece in self._pieces(text):
            clean = self._shapes(self.values(piece))
            changed = changed or clean is not piece
            masked.append(clean)
        return "".join(masked) if changed else text  # joining 100 MB in one go would hold the GIL for 50 ms

    def data(self, data: bytes) -> bytes:
        """Return bytes with known values and key shapes masked, wherever they stand in them."""
        text = data.decode("latin-1")  # one character a byte; the secrets are read in the same way
        masked = Redactor(secret.encode().decode("latin-1") for secret in self._secrets).text(text)
        return data if masked == text else masked.encode("latin-1")

    def values(self, text: str) -> str:
        """Return the text with known values masked."""
        for secret in self._secrets:
            if secret in text:
                text = text.replace(secret, MASK)
        return text

    def stream(self) -> StreamRedactor:
        """Return a masker for text that arrives in pieces."""
        return StreamRedactor(self, self._secrets)

    @staticmethod
    def _shapes(text: str) -> str:
        for literal, shape in _SHAPES:
            if literal in text:
                text = shape.sub(MASK, text)
        return text

    def _pieces(self, text: str) -> Iterator[str]:
        start, length = 0, len(text)
        while start < length:
            end = min(start + CHUNK, length)
            if end < length:
                end = self._safe_end(text, start, end)
            yield text[start:end]
            start = end

    def _safe_end(self, text: str, start: int, end: int) -> int:
        """Move a chunk's end to where no key can stand across it: to white space, and past an open key block."""
        for index in range(end, min(end + _REACH, len(text))):
            if text[index].isspace() and not self._spans(text, index):
                end = index
                break
        block = text.rfind("-----BEGIN", start, end + 10)
        closing = text.find("-----END", block, end + _REACH) if block >= 0 else -1
        closed = text.find("-----", closing + 8, closing + 100) if closing >= 0 else -1
        return max(end, closed + 5) if closed >= 0 else end

    def _spans(self, text: str, index: int) -> bool:
        return any(
            text.find(secret, max(0, index - len(secret) + 1), index + len(secret)) >= 0
            for secret in self._secrets
            if " " in secret or "\n" in secret
        )


class StreamRedactor:
    """Masks known values in text that arrives in pieces; one per stream."""

    def __init__(self, redactor: Redactor, secrets: list[str]) -> None:
        """Start with nothing held back."""
        self._redactor, self._secrets = redactor, secrets
        self._first = {secret[0] for secret in secrets}
        self._held = ""

    def feed(self, piece: str) -> str:
        """Return what may be shown now; a tail that may begin a secret is held back."""
        if not self._secrets:
            return piece
        text = self._redactor.values(self._held + piece)
        keep = self._may_begin(text)
        self._held = text[len(text) - keep :] if keep else ""
        return text[: len(text) - keep] if keep else text

    def flush(self) -> str:
        """Return what was held back: the stream has ended, so it began no secret."""
        held, self._held = self._held, ""
        return held

    def _may_begin(self, text: str) -> int:
        longest = len(self._secrets[0]) - 1
        window = text[-longest:]
        for offset, character in enumerate(window):
            if character in self._first and any(secret.startswith(window[offset:]) for secret in self._secrets):
                return len(window) - offset
        return 0
