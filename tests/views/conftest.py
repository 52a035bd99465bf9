"""Turns to show: the golden files, turns of a scripted kind, the attack corpus; and readers that judge what was written."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest
from markdown_it import MarkdownIt

from agent_kernel.protocol.events import (
    Event,
    MessageCompleted,
    RoundFinished,
    RoundStarted,
    TextAppended,
    ToolCallFinished,
    TurnFinished,
    TurnStarted,
)
from agent_kernel.protocol.fold import fold
from agent_kernel.protocol.messages import Artifact, AssistantMessage, Excerpt, ToolCall, ToolResult

DATA = Path(__file__).resolve().parents[1] / "data"
GOLDEN = sorted((DATA / "golden").glob("*.json"))

TAGS = {
    "p",
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "ul",
    "ol",
    "li",
    "blockquote",
    "pre",
    "code",
    "em",
    "strong",
    "s",
    "del",
    "hr",
    "br",
    "a",
    "img",
    "table",
    "thead",
    "tbody",
    "tr",
    "th",
    "td",
    "span",
    "div",
    "details",
    "summary",
    "progress",
}
ATTRIBUTES = {
    "a": {"href", "target", "rel"},
    "img": {"src", "alt", "style"},
    "ol": {"start"},
    "th": {"style"},
    "td": {"style"},
    "pre": {"style"},
    "div": {"style"},
    "span": {"style"},
    "code": {"style", "class"},
    "details": {"style", "open"},
    "summary": {"style"},
    "progress": {"style", "max", "value"},
}
OWN = {"<code>", "</code>", "<span>", "</span>", "<br>"}


class Judge(HTMLParser):
    """Reads HTML and notes what must not be in it."""

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.bad = []
        self.open = []
        self.text = []

    def handle_starttag(self, tag, attrs):
        if tag not in TAGS:
            self.bad.append(f"<{tag}>")
        if tag not in {"br", "hr", "img"}:
            self.open.append(tag)
        for name, value in attrs:
            if name not in ATTRIBUTES.get(tag, ()):
                self.bad.append(f"<{tag} {name}>")
            if name == "href" and not re.match(r"(https?://|mailto:)", value or ""):
                self.bad.append(f"href {value}")
            if name == "src" and not re.match(r"data:image/(png|jpeg|gif|webp);base64,[A-Za-z0-9+/=]*$", value or ""):
                self.bad.append(f"src {value}")
            if name == "style" and re.search(r"url|expression|position|@|\\", value or ""):
                self.bad.append(f"style {value}")

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.bad.append(f"</{tag}>")

    def handle_comment(self, data):
        self.bad.append("comment")

    def handle_decl(self, decl):
        self.bad.append("declaration")

    def handle_pi(self, data):
        self.bad.append("instruction")

    def unknown_decl(self, data):
        self.bad.append("declaration")

    def handle_data(self, data):
        self.text.append(data)


@pytest.fixture
def judged():
    """Return a function that reads HTML, fails on anything but ours, and returns its text."""

    def read(html):
        judge = Judge()
        judge.feed(html)
        judge.close()
        assert judge.bad == [], html[:2000]
        assert judge.open == [], html[:2000]
        return "".join(judge.text)

    return read


class Wary(HTMLParser):
    """Reads HTML of any shape and notes what could act or ask another host."""

    def __init__(self):
        super().__init__()
        self.bad = []

    def handle_starttag(self, tag, attrs):
        if tag in {"script", "style", "iframe", "object", "embed", "svg", "form", "input", "button", "link", "meta", "base"}:
            self.bad.append(tag)
        for name, value in attrs:
            if name.startswith(("on", "data-", "srcdoc", "action")):
                self.bad.append(name)
            if name == "href" and not re.match(r"https?://|mailto:|#", value or ""):
                self.bad.append(value)
            if name == "src" and not (value or "").startswith("data:image/"):
                self.bad.append(value)


@pytest.fixture
def harmless():
    """Return a function that fails on HTML that could act, whoever wrote it."""

    def read(html):
        wary = Wary()
        wary.feed(html)
        wary.close()
        assert wary.bad == [], html[:2000]

    return read


@pytest.fixture
def judged_markdown(judged):
    """Return a function that reads canonical Markdown with a parser that allows HTML, and fails on any but ours."""
    reader = MarkdownIt("commonmark", {"html": True, "maxNesting": 100}).enable(["table", "strikethrough"])

    def read(text):
        for token in reader.parse(text):
            assert token.type != "html_block", token.content
            for child in token.children or []:
                assert child.type != "html_inline" or child.content in OWN, child.content
        return judged(reader.render(text))

    return read


def expanded(member):
    return member if isinstance(member, str) else member["text"] * member["times"] + member["then"]


def corpus():
    return [
        (each["name"], place, expanded(member))
        for each in json.loads((DATA / "attacks.json").read_text())["classes"]
        for place, member in enumerate(each["members"])
    ]


def pytest_generate_tests(metafunc):
    if "attack" in metafunc.fixturenames:
        cases = corpus()
        metafunc.parametrize("attack", [text for _, _, text in cases], ids=[f"{name}-{place}" for name, place, _ in cases])
    if "golden" in metafunc.fixturenames:
        metafunc.parametrize("golden", GOLDEN, ids=[path.stem for path in GOLDEN], indirect=True)


@pytest.fixture
def golden(request):
    """The events of a whole turn."""
    return msgspec.json.decode(msgspec.json.encode(json.loads(request.param.read_text())["events"]), type=list[Event])


@pytest.fixture
def turn_of():
    """Return a function that makes a turn's events from its text, and one call if it is given."""

    def make(text="", *, call=None, result="done", error=None, status="completed", turn_error=None, reasoning="", artifact=None, handle="r1"):
        made = []

        def add(kind, **fields):
            made.append(kind(turn_id="t", seq=len(made), at=1000.0 + len(made) / 8, **fields))

        add(TurnStarted, session_id="s", prompt="go", model="scripted")
        if call is not None:
            tool_call = ToolCall(id="c", name=call[0], arguments=call[1])
            add(RoundStarted, round=1)
            add(MessageCompleted, message=AssistantMessage(text="", reasoning=reasoning, tool_calls=(tool_call,)))
            kept = Artifact(handle=handle, hash="sha256:0", media_type="text/plain", size=9) if artifact else None
            outcome = ToolResult(
                call_id="c",
                name=call[0],
                status="error" if error else "ok",
                error=error,
                artifact=kept,
                elapsed=0.5,
                excerpt=Excerpt(text=result, shown=len(result), total=len(result)),
            )
            add(ToolCallFinished, result=outcome)
            add(RoundFinished, round=1)
        if text:
            add(RoundStarted, round=2 if call else 1)
            add(TextAppended, text=text)
        add(TurnFinished, status=status, error=turn_error)
        return made

    return make


@pytest.fixture
def folded(turn_of):
    """Return a function that makes the state of such a turn."""
    return lambda *args, **options: fold(turn_of(*args, **options))
