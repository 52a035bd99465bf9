"""Session: a conversation. One active turn at a time, on whatever loop it is asked; it belongs to none.

It holds what was said, writes history at each finished round (law 5: before the next request leaves), and keeps the prompt of a turn
that did not end well, for ``retry``. It builds no collaborator but the defaults that its constructor names.
"""

from __future__ import annotations

import contextlib
import os
import threading
import uuid
from collections.abc import AsyncGenerator, Iterable, Mapping
from concurrent.futures import Executor
from typing import Any, Self, cast

from msgspec import structs

from agent_kernel.agent.approval import Approve, Approver, Policy
from agent_kernel.agent.cancellation import Cancellation
from agent_kernel.agent.conversation import Conversation
from agent_kernel.agent.execute import Abandoned, Execution, Place
from agent_kernel.agent.intake import Intake
from agent_kernel.agent.keeper import Keeper
from agent_kernel.agent.limits import DEFAULT_MAX_PARALLEL_TOOLS, DEFAULT_MAX_RESULT_CHARS, DEFAULT_MAX_ROUNDS, Limits
from agent_kernel.agent.redact import Redactor, secret_values
from agent_kernel.agent.retrying import Clock, SystemClock
from agent_kernel.agent.turn import OnLimit, Setup, check_options, run_turn
from agent_kernel.errors import NothingToRetry, SessionBusy, StoreError
from agent_kernel.model.base import Model
from agent_kernel.protocol.events import Event, RoundFinished, TurnFinished
from agent_kernel.protocol.fold import TurnState
from agent_kernel.protocol.messages import Artifact, Message, SystemMessage, Usage
from agent_kernel.protocol.text import well_formed
from agent_kernel.store.artifacts import Artifacts
from agent_kernel.store.history import History
from agent_kernel.store.records import SessionRecord, TurnRecord, lines
from agent_kernel.tools.tool import Tool
from agent_kernel.tools.toolbox import Toolbox


class Session:
    """A conversation with a model and tools."""

    def __init__(
        self,
        model: Model,
        *,
        tools: Iterable[Any] | Toolbox = (),
        history: History | None = None,
        artifacts: Artifacts | None = None,
        name: str | None = None,
        system_prompt: str | None = None,
        messages: Iterable[Message] = (),
        max_rounds: int = DEFAULT_MAX_ROUNDS,
        max_parallel_tools: int = DEFAULT_MAX_PARALLEL_TOOLS,
        max_result_chars: int = DEFAULT_MAX_RESULT_CHARS,
        max_input_tokens: int | None = None,
        answer_at_limit: bool = False,
        on_limit: OnLimit | None = None,
        approve: Approve | None = None,
        executor: Executor | None = None,
        places: Mapping[str, Place] | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Make a session; nothing is read or written yet.

        Args:
            model: Who answers.
            tools: Functions, Tools and Toolboxes on offer.
            history: Where turns are kept; None: in memory.
            artifacts: Where large outputs are kept; None: in a temporary folder.
            name: A label for people.
            system_prompt: Instructions that stand before the conversation; never kept in history.
            messages: A conversation to go on from; a system message among them is the system prompt unless one is given.
            max_rounds: Model requests per turn, 1 to 1,000.
            max_parallel_tools: Calls that run at once, 1 to 256; with 1, one after another in call order.
            max_result_chars: Characters of a tool's output that the model sees, at least 1.
            max_input_tokens: Budget of a request by estimate, at least 1; None: no limit.
            answer_at_limit: Ask once more with tools off when the rounds are used up.
            on_limit: ``f(reason)``, sync or async: True allows ``max_rounds`` more.
            approve: ``f(call, reason)``, sync or async: True, False, a text that denies with this comment, or
                ``agent_kernel.agent.approval.ALWAYS``; None: what asks is denied.
            executor: Runs sync tools; None: a daemon thread per call.
            places: How tools with ``runs_on`` other than ``auto`` are run.
            clock: Where waiting comes from, for tests.

        Raises:
            ValueError: A limit is out of its range.
        """
        self.limits = Limits(
            max_rounds=max_rounds,
            max_parallel_tools=max_parallel_tools,
            max_result_chars=max_result_chars,
            max_input_tokens=max_input_tokens,
            answer_at_limit=answer_at_limit,
        )
        given = list(messages)
        systems = [message.text for message in given if isinstance(message, SystemMessage)]
        self.id = str(uuid.uuid4())
        self.name = name
        self.model = model
        self.tools = tools if isinstance(tools, Toolbox) else Toolbox(tools)
        self.history = history or History.open(None)
        self.artifacts = artifacts or Artifacts.open(None)
        self.system_prompt = system_prompt if system_prompt is not None else "\n\n".join(systems) or None
        self.on_limit, self.approve, self.executor, self.places = on_limit, approve, executor, dict(places or {})
        self.state: TurnState | None = None
        self.pending_prompt: str | None = None
        self.abandoned = Abandoned()
        self._owned = [made for made, given_one in ((self.history, history), (self.artifacts, artifacts)) if given_one is None]
        self._clock = clock or SystemClock()
        self._said = Conversation(given)
        self._created = False
        self._lock = threading.Lock()
        self._cancellation: Cancellation | None = None
        self._allowed: set[Tool] = set()  # for which a person has said: always in this session

    @property
    def messages(self) -> list[Message]:
        """Committed messages, the system message first if there is one."""
        system: list[Message] = [SystemMessage(text=self.system_prompt)] if self.system_prompt else []
        return system + self._said.messages

    @property
    def turns(self) -> list[TurnRecord]:
        """The session's turns as records, replaced ones left out, retries included."""
        return self._said.turns

    @property
    def usage(self) -> Usage:
        """Sum over all ended turns of this session, replaced and failed ones included."""
        return sum((turn.end.usage for turn in self._said.records if turn.end is not None), Usage())

    @property
    def running(self) -> bool:
        """Whether a turn is running."""
        return self._cancellation is not None

    def artifact(self, handle: str) -> Artifact:
        """Return the artifact that a handle of this session means.

        Raises:
            ArtifactNotFound: This session has no such handle.
        """
        return self._said.artifact(handle, self.state)

    async def result(self, handle: str) -> str | bytes:
        """Return a whole output of this session.

        Raises:
            ArtifactNotFound: This session has no such handle, or its bytes are gone.
        """
        return await self.artifacts.read(self.artifact(handle))

    def __repr__(self) -> str:
        state = "running" if self.running else "idle"
        pending = ", a prompt to retry" if self.pending_prompt is not None else ""
        return f"<Session {self.name or self.id[:8]}: {len(lines(self._said.records))} turns, {state}{pending}>"

    async def ask(
        self, prompt: str, *, tool_choice: str = "auto", approve: Approve | None = None, policy: Policy | None = None
    ) -> AsyncGenerator[Event, None]:
        """Run a turn and yield its events.

        Args:
            prompt: What to ask.
            tool_choice: auto, none, required (a tool in the first round) or a tool's name (the same).
            approve: Answers for this turn instead of the session's hook.
            policy: allow, ask or deny, for this turn; None leaves it to the tools.

        Raises:
            SessionBusy: A turn is running in this session.
            AgentKernelError: What ended the turn, after TurnFinished; its ``state`` is the TurnState.
            ValueError: An empty prompt, or an option that does not exist.
        """
        async with contextlib.aclosing(self._turn(prompt, tool_choice, approve, policy, retries=None)) as events:
            async for event in events:
                yield event

    async def retry(self, *, tool_choice: str = "auto", approve: Approve | None = None, policy: Policy | None = None) -> AsyncGenerator[Event, None]:
        """Run a new turn for the pending prompt, going on after the last finished round; finished tools do not run again.

        Raises:
            NothingToRetry: No prompt is pending.
            SessionBusy: A turn is running in this session.
            AgentKernelError: What ended the turn.
        """
        if self.running:
            raise _busy(self)
        await self._catch_up()
        if self.pending_prompt is None:
            raise NothingToRetry("Nothing to retry: the last turn has its answer. Ask something new.")
        retries = self.turns[-1].turn_id if self.turns else None
        async with contextlib.aclosing(self._turn(self.pending_prompt, tool_choice, approve, policy, retries=retries)) as events:
            async for event in events:
                yield event

    async def run(self, prompt: str, *, tool_choice: str = "auto", approve: Approve | None = None, policy: Policy | None = None) -> TurnState:
        """Run a turn to its end and return its state; raises what ``ask`` raises."""
        async with contextlib.aclosing(self.ask(prompt, tool_choice=tool_choice, approve=approve, policy=policy)) as events:
            async for _ in events:
                pass
        return cast("TurnState", self.state)

    def cancel(self) -> None:
        """Ask the running turn to stop; from any thread, any number of times, no error if none runs."""
        cancellation = self._cancellation
        if cancellation is not None:
            cancellation.request()

    async def _turn(
        self, prompt: str, tool_choice: str, approve: Approve | None, policy: Policy | None, *, retries: str | None
    ) -> AsyncGenerator[Event, None]:
        check_options(self.model, self.tools, prompt, tool_choice, policy)
        cancellation = self._claim()
        keeper = Keeper(self.id, self._said, self.history, retries=retries)
        try:
            await self._catch_up()
            setup = await self._setup(keeper, prompt, tool_choice, approve, policy)
            self.state = keeper.state
            async with contextlib.aclosing(run_turn(setup, keeper.state, cancellation)) as events:
                async for event in events:
                    if type(event) is RoundFinished or type(event) is TurnFinished:
                        await keeper.keep(event)
                        self.pending_prompt = self._said.pending if type(event) is TurnFinished else None
                    yield event
            keeper.check()
        finally:
            try:
                await keeper.close()
                self.pending_prompt = self._said.pending
            finally:
                self._cancellation = None

    async def _setup(self, keeper: Keeper, prompt: str, tool_choice: str, approve: Approve | None, policy: Policy | None) -> Setup:
        """Bring together what a turn works with, and put the turn on record."""
        redactor = Redactor(secret_values(os.environ) | frozenset(getattr(self.model, "secrets", ())))
        intake = Intake(artifacts=self.artifacts, redactor=redactor, budget=self.limits.result_budget, first_handle=self._said.next_handle())
        await self._said.fit(intake, self.limits.result_budget)
        turn_id, prompt = str(uuid.uuid4()), redactor.text(well_formed(prompt))
        asked = await keeper.begin(turn_id, prompt, str(getattr(self.model, "name", "")))
        self.pending_prompt = None
        return Setup(
            session_id=self.id,
            turn_id=turn_id,
            prompt=prompt,
            prior=list(self._said.sent),
            asked=asked,
            check_kept=keeper.check,
            model=self.model,
            toolbox=self.tools,
            system_prompt=self.system_prompt,
            tool_choice=tool_choice,
            limits=self.limits,
            policy=policy,
            approver=Approver(approve or self.approve, self._allowed),
            on_limit=self.on_limit,
            execution=Execution(intake=intake, executor=self.executor, places=self.places, abandoned=self.abandoned),
            intake=intake,
            redactor=redactor,
            fresh_id=self._said.fresh_id,
            clock=self._clock,
        )

    def _claim(self) -> Cancellation:
        with self._lock:
            if self._cancellation is not None:
                raise _busy(self)
            self._cancellation = Cancellation()
            return self._cancellation

    async def fork(self, at: int | None = None, *, name: str | None = None) -> Session:
        """Return a new session that shares the first ``at`` turns (None: all); this one is unchanged.

        Raises:
            SessionBusy: A turn is running in this session.
            StoreError: It has fewer turns.
        """
        if self.running:
            raise _busy(self)
        await self._ensure_created()
        record = await self.history.fork(self.id, at=at, name=name or self.name)
        other = Session(
            self.model,
            tools=Toolbox([self.tools]),
            history=self.history,
            artifacts=self.artifacts,
            system_prompt=self.system_prompt,
            on_limit=self.on_limit,
            approve=self.approve,
            executor=self.executor,
            places=self.places,
            clock=self._clock,
            **structs.asdict(self.limits),
        )
        other._load(record, given=self._said.given)
        return other

    async def resume(self, session_id: str) -> Self:
        """Load a stored session into this object, its pending prompt included.

        Raises:
            SessionBusy: A turn is running in this session.
            StoreError: No session has this id.
        """
        record = await self.history.load(session_id)
        if self.running:  # asked here, because a turn may have begun meanwhile
            raise _busy(self)
        self._load(record)
        return self

    def _load(self, record: SessionRecord, *, given: Iterable[Message] = ()) -> None:
        self.id, self.name, self._created, self.state = record.id, record.name, True, None
        self._said.load(record, given=given)
        self.pending_prompt = self._said.pending

    async def drop_last_turn(self, turn_id: str) -> bool:
        """Take the last turn (its retries included) out of the conversation; it stays on record. False: ``turn_id`` is not the last.

        Raises:
            SessionBusy: A turn is running in this session.
        """
        if self.running:
            raise _busy(self)
        gone = self._said.replace_last(turn_id)
        if gone:
            await self.history.replace_turns(self.id, gone)
            self.pending_prompt = self._said.pending
        return bool(gone)

    async def _ensure_created(self) -> None:
        if self._created:
            return
        self._created = True  # before the write, which is done to its end even if who awaits it is cancelled
        try:
            await self.history.create(session_id=self.id, name=self.name, fresh=True)
        except StoreError:
            self._created = False
            raise

    async def _catch_up(self) -> None:
        """Make this session ours to ask in; what another kernel has added since it was loaded is loaded now."""
        await self._ensure_created()
        record = await self.history.claim(self.id)
        if record is not None and [turn.turn_id for turn in record.turns] != [turn.turn_id for turn in self._said.records]:
            self._said.load(record, given=self._said.given)
            self.pending_prompt = self._said.pending

    async def close(self) -> None:
        """Stop a running turn and release what this session made itself."""
        self.cancel()
        for owned in self._owned:
            await owned.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def _busy(session: Session) -> SessionBusy:
    return SessionBusy(f"A turn is running in session {session.name or session.id[:8]}: wait for it, cancel it, or ask in another session.")
