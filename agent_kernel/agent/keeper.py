"""Keeper: keeps one running turn, in the session's conversation and in history, at the events that ask for it (law 5).

Whatever ends the turn, ``close`` records what its state says, so that a consumer that left early loses nothing.
"""

from __future__ import annotations

import time

from agent_kernel.agent.conversation import Conversation
from agent_kernel.errors import StoreError
from agent_kernel.protocol.events import Event, RoundFinished, TurnFinished
from agent_kernel.protocol.fold import TurnState
from agent_kernel.protocol.messages import AssistantMessage
from agent_kernel.store.history import History
from agent_kernel.store.records import RoundRecord, TurnEnd, TurnRecord


class Keeper:
    """The record of one turn while it runs."""

    def __init__(self, session_id: str, conversation: Conversation, history: History, *, retries: str | None) -> None:
        """Keep the collaborators; ``retries`` names the turn whose prompt is asked again."""
        self.state = TurnState()
        self._session_id, self._conversation, self._history, self._retries = session_id, conversation, history, retries
        self._kept = 0  # messages of the state that are on record
        self._ended = False
        self._problem: StoreError | None = None

    async def begin(self, turn_id: str, prompt: str, model: str) -> bool:
        """Record that the turn begins; return whether its prompt is on record already."""
        turn = TurnRecord(turn_id=turn_id, prompt=prompt, model=model, started_at=time.time(), retries=self._retries)
        await self._history.start_turn(self._session_id, turn)
        self._conversation.begin(turn)
        asked = self._conversation.asked()
        self._kept = 1 if asked else 0
        return asked

    async def keep(self, event: Event) -> None:
        """Record what an event settles, before anybody sees it; what cannot be recorded is raised by ``check``, after the event was shown."""
        try:
            if type(event) is RoundFinished:
                await self._keep_round(event.round)
            elif type(event) is TurnFinished:
                await self._keep_end()
        except StoreError as error:
            self._problem = error

    def check(self) -> None:
        """Raise what kept the last event from being recorded.

        Raises:
            StoreError: History could not be written.
        """
        if self._problem is not None:
            problem, self._problem = self._problem, None
            problem.state = self.state
            raise problem

    async def close(self) -> None:
        """Record the end of a turn whose last events nobody took."""
        if self.state.status != "running" and not self._ended:
            await self._keep_end()

    async def _keep_round(self, number: int) -> None:
        state = self.state
        messages = tuple(state.messages[self._kept :])
        self._kept = len(state.messages)
        results = tuple(entry.result for entry in state.tool_calls if entry.round == number and entry.result is not None)
        round_ = RoundRecord(turn_id=state.turn_id, round=number, messages=messages, results=results, at=time.time())
        self._conversation.add_round(round_)
        await self._history.append_round(self._session_id, round_)

    async def _keep_end(self) -> None:
        state = self.state
        self._ended = True
        left = state.messages[self._kept :]
        if any(isinstance(message, AssistantMessage) for message in left) and state.status != "failed":
            await self._keep_round(state.rounds)
            left = []
        end = TurnEnd(
            turn_id=state.turn_id,
            status="cancelled" if state.status == "running" else state.status,
            error=state.error,
            partial_text=state.text if state.status in ("failed", "cancelled") else "",
            messages=tuple(left) if state.status == "cancelled" else (),
            usage=state.usage,
            at=time.time(),
        )
        self._conversation.end(end)
        await self._history.end_turn(self._session_id, end)
