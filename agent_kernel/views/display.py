"""A turn in a cell without widgets: one display that is updated while the turn runs and ends as transcript and answer.

Called on the engine's loop with the cell's context. The server drops what comes too fast without a word, so updates are spaced by their
size and by what they cost to render; the last state is always drawn. The door to IPython's display.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar
from uuid import uuid4

from agent_kernel.protocol.events import Event
from agent_kernel.protocol.fold import ToolCallState, TurnState
from agent_kernel.views.cards import FRAME, calls_by_round, card, reasoning, status_line
from agent_kernel.views.ending import answer, ending_html, markdown_of, provenance, transcript, transcript_text
from agent_kernel.views.growing import GrowingMarkdown
from agent_kernel.views.literal import visible

MIN_INTERVAL = 0.05  # seconds between updates
BYTES_PER_SECOND = 300_000  # the server's limit is 1 MB a second, for all cells of a kernel together
BUSY_SHARE = 0.1  # of the engine's time, at most, goes into rendering
TICK = 1.0  # seconds between updates in which only the elapsed time changes; a tenth of that time, if that is more
PLAIN_TAIL = 2_000  # characters of the text so far in an update's plain form

T = TypeVar("T")
Bundle = dict[str, str]
Publish = Callable[..., object]  # publish(data, metadata, display_id, update)


class DisplayView:
    """A turn as a display that is updated in place.

    Args:
        version: Of this package, for the outputs' metadata.
        publish: Takes ``data``, ``metadata``, ``display_id`` and ``update``; None: IPython's display.
        clock: Seconds since the epoch.
    """

    def __init__(self, *, version: str = "", publish: Publish | None = None, clock: Callable[[], float] = time.time) -> None:
        self._version = version
        self._publish = _display if publish is None else publish
        self._clock = clock
        self._id = f"agent-{uuid4().hex}"
        self._picture = _LivePicture()
        self._state: TurnState | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0  # on the loop's clock: when the timer fires
        self._free = 0.0  # and from when on an update may be sent

    def start(self, state: TurnState) -> None:
        """Show that the turn has begun."""
        self._state = state
        self._draw(update=False)

    def apply(self, events: Sequence[Event]) -> None:  # noqa: ARG002 - the state has them already
        """Show what has happened since, now or as soon as the pace allows."""
        self._plan(self._free)

    def finish(self, state: TurnState) -> None:
        """Swap the display for the transcript, and show the answer below it."""
        self._stop()
        metadata = _surely(lambda: provenance(state, self._version), _no_metadata)
        self._publish(_surely(lambda: transcript(state), _least(state)), metadata=metadata, display_id=self._id, update=True)
        data = answer(state)
        if data is not None:
            self._publish(data, metadata=metadata, display_id=None, update=False)

    def _plan(self, when: float) -> None:
        """Draw at a time of the loop's clock, or earlier if that is planned already."""
        loop = asyncio.get_running_loop()
        if self._timer is not None:
            if self._due <= when:
                return
            self._timer.cancel()
        self._due = when
        self._timer = loop.call_at(when, self._redraw)  # in the cell's context, which is ours now

    def _draw(self, *, update: bool) -> None:
        state, loop = self._state, asyncio.get_running_loop()
        if state is None:
            return
        self._timer = None
        begun = time.perf_counter()
        now = self._clock()
        data = _surely(lambda: self._picture.bundle(state, now), _least(state))
        metadata = _surely(lambda: provenance(state, self._version), _no_metadata)
        self._publish(data, metadata=metadata, display_id=self._id, update=update)
        cost = time.perf_counter() - begun
        interval = max(MIN_INTERVAL, sum(map(len, data.values())) / BYTES_PER_SECOND, cost / BUSY_SHARE)
        self._free = loop.time() + interval
        self._plan(loop.time() + max(TICK, interval, (now - (state.started_at or now)) / 10))

    def _redraw(self) -> None:
        with suppress(Exception):  # a front end that fails now may take the next one; whether the ending shows is what counts
            self._draw(update=True)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._state = None


class AnswerDisplay:
    """The answer alone, at the end, as a display; for an asker who wants no more.

    Args:
        version: Of this package, for the output's metadata.
        publish: As in DisplayView.
    """

    def __init__(self, *, version: str = "", publish: Publish | None = None) -> None:
        self._version = version
        self._publish = _display if publish is None else publish

    def start(self, state: TurnState) -> None:
        """Show nothing."""

    def apply(self, events: Sequence[Event]) -> None:
        """Show nothing."""

    def finish(self, state: TurnState) -> None:
        """Show the answer; of a turn that has none, the last text."""
        if state.answer:
            self._publish(markdown_of(state.answer), metadata=provenance(state, self._version), display_id=None, update=False)


class _LivePicture:
    """The HTML of a running turn; what cannot change any more is kept."""

    def __init__(self) -> None:
        self._prose: list[GrowingMarkdown] = []
        self._cards: dict[str, str] = {}  # of calls that have ended
        self._reasonings: dict[int, str] = {}  # of rounds that are over

    def bundle(self, state: TurnState, now: float) -> Bundle:
        """Return the picture as it is now."""
        calls = calls_by_round(state)
        rounds = "".join(self._round(state, number, calls.get(number, ()), now) for number in range(1, len(state.texts) + 1))
        text = state.answer
        plain = f"{transcript_text(state)}\n{visible(text[-PLAIN_TAIL:])}".strip()
        return {"text/html": f'<div style="{FRAME}">{status_line(state, now)}{rounds}{ending_html(state)}</div>', "text/plain": plain}

    def _round(self, state: TurnState, number: int, calls: Sequence[ToolCallState], now: float) -> str:
        while len(self._prose) < number:
            self._prose.append(GrowingMarkdown())
        cards = "".join(self._card(entry, now) for entry in calls)
        return self._reasoning(state, number) + self._prose[number - 1].render(state.round_text(number)) + cards

    def _card(self, entry: ToolCallState, now: float) -> str:
        if entry.result is None:
            return card(entry, now)
        if entry.id not in self._cards:
            self._cards[entry.id] = card(entry, now)
        return self._cards[entry.id]

    def _reasoning(self, state: TurnState, number: int) -> str:
        if number in self._reasonings:
            return self._reasonings[number]
        html = reasoning("".join(state.reasonings[number - 1]))
        if number < len(state.texts):
            self._reasonings[number] = html
        return html


def _surely(make: Callable[[], T], otherwise: Callable[[Exception], T]) -> T:
    """Return what is made, or the least that can be shown where making it fails: a turn never ends because of its looks."""
    try:
        return make()
    except Exception as error:  # made of foreign text: what was not thought of must not cost the turn
        return otherwise(error)


def _least(state: TurnState) -> Callable[[Exception], Bundle]:
    def bundle(error: Exception) -> Bundle:
        why = f"This turn cannot be drawn ({type(error).__name__}); its messages are in agent.session.messages."
        return {"text/plain": f"agent: {state.status}. {why}"}

    return bundle


def _no_metadata(_: Exception) -> dict[str, Any]:
    return {}


def _display(data: Bundle, *, metadata: dict[str, Any], display_id: str | None, update: bool) -> None:
    """Publish through IPython, into the cell whose context this is."""
    from IPython.display import publish_display_data  # noqa: PLC0415  # `import agent_kernel` and scripts load no IPython

    transient = {"display_id": display_id} if display_id else {}
    publish_display_data(data, metadata, transient=transient, update=update)  # type: ignore[no-untyped-call]
