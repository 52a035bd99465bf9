from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_kernel.errors import ModelProtocolError
from agent_kernel.model.sse import SSESplitter


def split(*pieces: bytes) -> list[tuple[bytes, bytes]]:
    splitter = SSESplitter()
    return [event for piece in pieces for event in splitter.feed(piece)] + splitter.close()


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        (b"data: a\n\ndata: b\n\n", [(b"", b"a"), (b"", b"b")]),
        (b"data: a\r\n\r\ndata: b\r\n\r\n", [(b"", b"a"), (b"", b"b")]),
        (b"data: a\r\rdata: b\r\r", [(b"", b"a"), (b"", b"b")]),
        (b"data:a\n\ndata:  b\n\n", [(b"", b"a"), (b"", b" b")]),
        (b"data: a\ndata: b\n\n", [(b"", b"a\nb")]),
        (b"data\n\n", [(b"", b"")]),
        (b": comment\n\n:\n\ndata: a\n\n", [(b"", b"a")]),
        (b"event: ping\nid: 7\nretry: 10\ndata: a\n\n", [(b"ping", b"a")]),
        (b"event: ping\n\n", []),
        (b"\xef\xbb\xbfdata: a\n\n", [(b"", b"a")]),
        (b"\n\n\ndata: a\n\n\n\n\ndata: b\n\n\n", [(b"", b"a"), (b"", b"b")]),
        (b"data: a\n\ndata: no blank line", [(b"", b"a"), (b"", b"no blank line")]),
        (b"data: one line end\n", [(b"", b"one line end")]),
        ("data: h\u00e9\U0001f600\n\n".encode(), [(b"", "h\u00e9\U0001f600".encode())]),
        (b"", []),
    ],
)
def test_an_event_is_found_wherever_the_bytes_are_cut(stream, events):
    assert split(stream) == events
    assert split(*(bytes([byte]) for byte in stream)) == events
    for cut in range(len(stream)):
        assert split(stream[:cut], stream[cut:]) == events
        assert split(stream[:cut], b"", stream[cut:]) == events


@given(st.data())
def test_any_stream_of_lines_gives_the_same_events_in_any_pieces(data):
    line = st.sampled_from([b"data: x", b"data:", b"event: e", b": c", b"", b"id: 1", b"data: \xc3\xa9", b"other"])
    stream = b"".join(part + data.draw(st.sampled_from([b"\n", b"\r\n", b"\r"])) for part in data.draw(st.lists(line, max_size=12)))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    pieces = [stream[start:end] for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert split(*pieces) == split(stream)


def test_an_event_is_handed_over_with_its_last_byte():
    splitter = SSESplitter()
    assert splitter.feed(b"data: a\n") == []
    assert splitter.feed(b"\n") == [(b"", b"a")]
    assert splitter.feed(b"data: b\r\n\r") == [(b"", b"b")]
    assert splitter.feed(b"\ndata: c\r\r") == [(b"", b"c")]


def test_what_is_no_event_stream_is_kept_for_the_message():
    splitter = SSESplitter()
    assert splitter.feed(b"<html>\n<body>no</body>\n\n") == []
    assert splitter.foreign == b"<html> <body>no</body>"


def test_an_event_without_end_fails_at_its_bound():
    splitter = SSESplitter(max_event=1000)
    splitter.feed(b"data: " + b"x" * 990)
    with pytest.raises(ModelProtocolError) as caught:
        splitter.feed(b"x" * 10)
    assert caught.value.kind == "bounds"


def test_the_time_grows_with_the_bytes_not_with_their_square():
    def seconds(size: int) -> float:
        splitter, start = SSESplitter(), time.perf_counter()
        for _ in range(size):
            splitter.feed(b"0123456789abcdef")
        return time.perf_counter() - start

    seconds(1000)
    small, large = min(seconds(10_000) for _ in range(3)), min(seconds(80_000) for _ in range(3))
    print(f"8 times the bytes took {large / small:.1f} times as long")
    assert large / small < 32
