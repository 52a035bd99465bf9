"""Conversation: what a session has said, in memory: its turns as records, and the messages that follow from them.

It reads no disk and no clock; Session and Keeper write the same records to history.
"""

from __future__ import annotations

import functools
import uuid
from collections.abc import Iterable

from msgspec import structs

from agent_kernel.agent.context import Outgoing, mended
from agent_kernel.agent.intake import Intake
from agent_kernel.agent.threads import in_thread
from agent_kernel.errors import ArtifactNotFound
from agent_kernel.protocol.fold import TurnState
from agent_kernel.protocol.messages import Artifact, AssistantMessage, Message, SystemMessage, ToolMessage, ToolResult, UserMessage
from agent_kernel.store.records import RoundRecord, SessionRecord, TurnEnd, TurnRecord, lines, thread, turn_messages

MARKER_CHARACTERS = 400  # an excerpt's marker at most, so that an excerpt is not taken for a result over the budget
LONGEST_ID = 128  # characters of a provider's call id that are taken over; longer ones are replaced


class Conversation:
    """The turns of one session, and the messages that it was given to go on from."""

    def __init__(self, given: Iterable[Message] = ()) -> None:
        """Start from given messages, mended; system messages are the session's business."""
        self.given = mended(message for message in given if not isinstance(message, SystemMessage))
        self.fitted: dict[str, ToolMessage] = {}  # call id -> what is sent instead of a result over the budget
        self.records: list[TurnRecord] = []
        self._recount()

    def load(self, record: SessionRecord, *, given: Iterable[Message] = ()) -> None:
        """Take over a stored session."""
        self.given, self.fitted, self.records = list(given), {}, list(record.turns)
        self._recount()

    @property
    def turns(self) -> list[TurnRecord]:
        """The turns that count, retries included."""
        return [turn for turn in self.records if not turn.replaced]

    @property
    def pending(self) -> str | None:
        """The prompt of a last turn that did not end well."""
        last = self.turns[-1] if self.turns else None
        if last is None or (last.end is not None and last.end.status == "completed"):
            return None
        return last.prompt

    @property
    def sent(self) -> list[Message]:
        """The messages as a request carries them: ready to be sent, results over the budget as excerpts."""
        fitted = self.fitted
        if not fitted:
            return self._outgoing.take(self.messages)
        return self._outgoing.take(
            [fitted.get(message.call_id, message) if isinstance(message, ToolMessage) else message for message in self.messages]
        )

    async def fit(self, intake: Intake, budget: int) -> None:
        """Store results over the budget, however they came in, off the loop; requests carry excerpts instead."""
        for message in self.messages:
            if isinstance(message, ToolMessage) and len(message.text) > budget + MARKER_CHARACTERS and message.call_id not in self.fitted:
                future, _ = in_thread(functools.partial(intake.prepare, message.text))
                kept = await intake.keep(await future)
                self._outgoing = Outgoing()
                self.fitted[message.call_id] = structs.replace(message, text=kept.excerpt.text, artifact=message.artifact or kept.artifact)

    def begin(self, turn: TurnRecord) -> None:
        """Add a turn; a retry drops the partial answer of the turn before."""
        self.records.append(turn)
        if turn.retries is not None:
            self._recount()

    def asked(self) -> bool:
        """Tell whether the last turn's prompt is among the messages already, from a turn that it retries."""
        return any(isinstance(message, UserMessage) for turn in lines(self.records)[-1] for message in turn_messages(turn))

    def add_round(self, round_: RoundRecord) -> None:
        """Add a finished round of the last turn."""
        self.records[-1] = structs.replace(self.records[-1], rounds=(*self.records[-1].rounds, round_))
        self.messages += round_.messages

    def end(self, end: TurnEnd) -> None:
        """End the last turn."""
        self.records[-1] = structs.replace(self.records[-1], end=end)
        self.messages += end.messages

    def replace_last(self, turn_id: str) -> set[str]:
        """Take the last turn and its retries out of the thread and return their ids; none if ``turn_id`` is not the last."""
        grouped = lines(self.records)
        gone = {turn.turn_id for turn in grouped[-1]} if grouped else set()
        if turn_id not in gone:
            return set()
        self.records = [structs.replace(turn, replaced=True) if turn.turn_id in gone else turn for turn in self.records]
        self._recount()
        return gone

    def fresh_id(self, provider_id: str | None) -> str:
        """Return a call id that this session has not seen: the provider's if it is one, else a new one."""
        usable = provider_id and len(provider_id) <= LONGEST_ID and provider_id.isprintable() and provider_id not in self._ids
        public = provider_id if usable and provider_id else f"call_{uuid.uuid4().hex[:16]}"
        self._ids.add(public)
        return public

    def artifacts(self) -> dict[str, Artifact]:
        """Return what is kept for this session, by handle."""
        results = [result for turn in self.records for round_ in turn.rounds for result in round_.results]
        came_in = [message.artifact for message in (*self.fitted.values(), *self.given) if isinstance(message, ToolMessage)]
        found = result_artifacts(results) + came_in
        return {artifact.handle: artifact for artifact in found if artifact is not None}

    def artifact(self, handle: str, state: TurnState | None) -> Artifact:
        """Return what a handle means, the results of a turn that runs included.

        Raises:
            ArtifactNotFound: This session has no such handle.
        """
        running = result_artifacts(entry.result for entry in state.tool_calls if entry.result is not None) if state is not None else []
        known = self.artifacts() | {artifact.handle: artifact for artifact in running if artifact is not None}
        if handle not in known:
            hint = f"There are: {', '.join(known)}." if known else "It has none yet."
            raise ArtifactNotFound(f"There is no result {handle!r} in this session. {hint}")
        return known[handle]

    def next_handle(self) -> int:
        """Return the number that no handle has had yet."""
        numbers = [int(handle[1:]) for handle in self.artifacts() if handle[:1] == "r" and handle[1:].isdecimal()]
        return max(numbers, default=0) + 1

    def _recount(self) -> None:
        self.messages: list[Message] = [*self.given, *thread(self.records)]
        self._outgoing = Outgoing()
        everything = [*self.given, *(message for turn in self.records for message in turn_messages(turn))]
        self._ids = {call.id for message in everything if isinstance(message, AssistantMessage) for call in message.tool_calls}


def result_artifacts(results: Iterable[ToolResult]) -> list[Artifact | None]:
    """Return what results refer to, attachments included."""
    return [artifact for result in results for artifact in (result.artifact, *result.attachments)]
