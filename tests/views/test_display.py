"""The live display: paced, never behind at the end, in the cell's context, and harmless to the turn."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from itertools import pairwise

import pytest

from agent_kernel.protocol.events import RoundStarted, TextAppended, TurnFinished, TurnStarted
from agent_kernel.protocol.fold import TurnState
from agent_kernel.views.display import BYTES_PER_SECOND, AnswerDisplay, DisplayView

CELL = ContextVar("cell", default="none")


class Screen:
    """Takes what a view publishes, with the time and the cell that it came from."""

    def __init__(self):
        self.shown = []
        self.changed = asyncio.Event()

    def __call__(self, data, *, metadata, display_id, update):
        self.shown.append((asyncio.get_running_loop().time(), data, metadata, display_id, update, CELL.get()))
        self.changed.set()

    async def until(self, text):
        """Wait until a text is shown."""
        while text not in self.shown[-1][1].get("text/html", ""):
            self.changed.clear()
            await asyncio.wait_for(self.changed.wait(), 10)


class Turn:
    """A turn that a test tells event by event."""

    def __init__(self, view):
        self.view, self.state = view, TurnState()
        self.tell(TurnStarted, session_id="s", prompt="go", model="scripted", apply=False)
        view.start(self.state)
        self.tell(RoundStarted, round=1)

    def tell(self, kind, apply=True, **fields):
        event = kind(turn_id="t", seq=self.state.seq + 1, at=1000.0 + self.state.seq / 1000, **fields)
        self.state.apply(event)
        if apply:
            self.view.apply([event])

    def finish(self, status="completed"):
        self.tell(TurnFinished, status=status)
        self.view.finish(self.state)


def test_updates_are_paced_and_the_last_text_shows_without_another_event():
    async def main():
        screen = Screen()
        turn = Turn(DisplayView(publish=screen, clock=lambda: 1000.0))
        begun = asyncio.get_running_loop().time()
        for number in range(600):
            turn.tell(TextAppended, text=f"word{number} ")
            await asyncio.sleep(0.001)
        await screen.until("word599 ".strip())
        took = asyncio.get_running_loop().time() - begun
        print(f"{len(screen.shown)} updates in {took:.2f} s")
        assert len(screen.shown) <= took / 0.05 + 3
        times = [at for at, *_ in screen.shown]
        assert min(later - earlier for earlier, later in pairwise(times[1:])) > 0.045
        turn.finish()

    asyncio.run(main())


def test_large_displays_are_sent_less_often():
    async def main():
        screen = Screen()
        turn = Turn(DisplayView(publish=screen, clock=lambda: 1000.0))
        turn.tell(TextAppended, text="A paragraph of some words.\n\n" * 8_000)
        await screen.until("some words")
        for word in ("first", "second"):
            turn.tell(TextAppended, text=word)
            await screen.until(word)
        sizes = [len(data["text/html"]) for _, data, *_ in screen.shown]
        times = [at for at, *_ in screen.shown]
        rates = [size / (later - earlier) for size, earlier, later in zip(sizes[1:], times[1:], times[2:], strict=False)]
        print("bytes a second:", [round(rate) for rate in rates])
        assert max(rates) < 1.2 * BYTES_PER_SECOND
        turn.finish()

    asyncio.run(main())


def test_everything_is_shown_in_the_cell_that_asked():
    async def main():
        screen = Screen()
        CELL.set("first")
        turn = Turn(DisplayView(publish=screen))
        turn.tell(TextAppended, text="hello")
        CELL.set("first")
        await screen.until("hello")
        turn.finish()
        assert {cell for *_, cell in screen.shown} == {"first"}
        ids = [display_id for *_, display_id, _, _ in screen.shown]
        updates = [update for *_, update, _ in screen.shown]
        assert len(set(ids[:-1])) == 1
        assert ids[-1] is None
        assert updates == [False] + [True] * (len(updates) - 2) + [False]

    asyncio.run(main())


def test_elapsed_time_moves_while_a_tool_is_silent():
    async def main():
        screen = Screen()
        clock = iter(range(1000, 2000))
        turn = Turn(DisplayView(publish=screen, clock=lambda: float(next(clock))))
        turn.tell(TextAppended, text="looking", apply=False)
        await screen.until("looking")
        before = len(screen.shown)
        while len(screen.shown) < before + 1:
            screen.changed.clear()
            await asyncio.wait_for(screen.changed.wait(), 10)
        assert screen.shown[-1][1]["text/html"] != screen.shown[-2][1]["text/html"]
        turn.finish()
        count = len(screen.shown)
        await asyncio.sleep(1.2)  # longer than a tick: nothing may come after the end
        assert len(screen.shown) == count

    asyncio.run(main())


def test_any_golden_turn_plays_and_ends_static(golden, judged):
    async def main():
        screen = Screen()
        view, state = DisplayView(version="1", publish=screen), TurnState()
        state.apply(golden[0])
        view.start(state)
        for event in golden[1:]:
            state.apply(event)
            view.apply([event])
            view._redraw()  # private: every step is drawn, not only those that the pace lets through
            judged(screen.shown[-1][1]["text/html"])
        view.finish(state)
        ends = [shown for shown in screen.shown if shown[2]["agent_kernel"]["status"] != "running"]
        assert ends[-1][2]["agent_kernel"]["version"] == "1"
        assert [sorted(data) for _, data, *_ in ends[-2:]][-1] in (["text/markdown", "text/plain"], ["text/html", "text/plain"])
        assert all("widget" not in mime for shown in screen.shown for mime in shown[1])

    asyncio.run(main())


def test_a_screen_that_fails_once_gets_the_ending():
    async def main():
        screen = Screen()
        broken = asyncio.Event()

        def publish(data, **options):
            if len(screen.shown) == 1 and not broken.is_set():
                broken.set()
                raise OSError("the front end is away")
            screen(data, **options)

        turn = Turn(DisplayView(publish=publish))
        turn.tell(TextAppended, text="hello")
        await asyncio.wait_for(broken.wait(), 10)
        turn.finish()
        assert screen.shown[-1][1]["text/plain"] == "hello"

    asyncio.run(main())


def test_a_state_that_cannot_be_drawn_does_not_end_the_turn():
    async def main():
        screen = Screen()
        turn = Turn(DisplayView(publish=screen))
        turn.state.model = None  # no such state exists; it stands for what nobody thought of
        turn.view._redraw()  # private: draws now
        assert "cannot be drawn" in screen.shown[-1][1]["text/plain"]
        turn.finish()
        assert "cannot be drawn" in screen.shown[-1][1]["text/plain"]
        assert screen.shown[-1][1]["text/plain"].startswith("agent: completed")

    asyncio.run(main())


@pytest.mark.parametrize("text", ["", "the **answer**"])
def test_the_answer_alone(text, folded):
    async def main():
        screen = Screen()
        view, state = AnswerDisplay(publish=screen), folded(text)
        view.start(state)
        view.apply([])
        view.finish(state)
        assert [data for _, data, *_ in screen.shown] == ([{"text/markdown": "the **answer**\n", "text/plain": text}] if text else [])

    asyncio.run(main())
