"""App: what one kernel holds, and the only place that builds it: settings, engine, history, side store, models, sessions, views.

Turns are prepared here in full before they begin, so that a refused one (a wrong option, a busy session) changes nothing.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from typing import Any

from agent_kernel.agent.approval import Policy
from agent_kernel.agent.limits import Limits
from agent_kernel.agent.session import Session
from agent_kernel.errors import SessionBusy, StoreError
from agent_kernel.notebook.asking import Asker
from agent_kernel.notebook.bridge import Bridge, Work, follow
from agent_kernel.notebook.cells import Cells, Request
from agent_kernel.notebook.engine import STOP_SECONDS, Engine
from agent_kernel.notebook.history import NotebookHistory
from agent_kernel.notebook.kept import KeptHere
from agent_kernel.notebook.models import Models
from agent_kernel.notebook.namespace import Agent, chosen, offered
from agent_kernel.notebook.options import Options
from agent_kernel.notebook.settings import Settings, Values
from agent_kernel.protocol.events import Event
from agent_kernel.protocol.fold import TurnState
from agent_kernel.tools.toolbox import Toolbox
from agent_kernel.views.display import AnswerDisplay, DisplayView
from agent_kernel.views.plain import AnswerView, PlainView
from agent_kernel.views.view import View

WARM = ("openai", "anywidget", "duckdb")  # slow to import, up to 0.6 s together; a first turn waits for openai, the others are for what comes

SYSTEM_PROMPT = (
    "You work in a Jupyter notebook. Use the tools on offer where they help, several at once where they do not depend on each other. "
    "Answer in Markdown. A tool result marked as truncated is kept whole under its handle."
)


class App:
    """One kernel's agent."""

    def __init__(self, shell: Any, *, settings: Settings | None = None) -> None:
        """Build what costs nothing; a session, its model and its store come with the first turn.

        Args:
            shell: The IPython shell, in a kernel or a terminal.
            settings: None: from this process's environment and settings file.
        """
        self.shell = shell
        self.settings = Settings() if settings is None else settings
        self.engine = Engine()
        self.bridge = Bridge(self.engine, kernel_loop=self._kernel_loop)
        self.cells = Cells(shell)
        self.models = Models(shell.user_ns)
        self._asker = Asker(shell, self.bridge.places)
        self.kept = KeptHere(self.settings, shell.user_ns)
        self._session: Session | None = None
        self._sessions: list[Session] = []  # all that this kernel made, to be closed with it
        self.agent = Agent(settings=self.settings, history=lambda: self.history, session=self.session, tools=self.offered, result=self.result)

    @property
    def history(self) -> NotebookHistory:
        """The history of this kernel's home."""
        return self.kept.history

    @property
    def in_kernel(self) -> bool:
        """Whether a front end shows what we display (not so in a terminal)."""
        return hasattr(self.shell, "kernel")

    def warm(self) -> None:
        """Import beside the first cells what the first turn will need."""
        self.engine.warm(WARM)

    def close(self) -> None:
        """Stop what runs, release what is held; idempotent and silent."""
        with suppress(Exception):  # the kernel goes down, or the engine is gone already
            self.engine.submit(self._close()).result(STOP_SECONDS)
        self.engine.stop()

    # -- what the namespace and the commands look at

    def session(self) -> Session:
        """Return the current session, made on first use, with the tools that the namespace offers now."""
        session = self._session if self._session is not None else self.engine.wait(self.current())
        if not session.running:
            session.tools = self.offered()
        return session

    def offered(self) -> Toolbox:
        """Return the tools that the namespace offers now."""
        return chosen(offered(self.shell.user_ns), None)

    def result(self, handle: str) -> Any:
        """Return the whole output behind a handle of the current session.

        Raises:
            ArtifactNotFound: The session has no such handle.
        """
        return self.engine.wait(self.read(handle))

    async def read(self, handle: str) -> Any:
        """Return the whole output behind a handle of the current session; on the engine.

        Raises:
            ArtifactNotFound: The session has no such handle.
        """
        return await (await self.current()).result(handle)

    async def current(self) -> Session:
        """Return the current session; on the engine."""
        return self._session if self._session is not None else self._first(await self.open_session())

    def _first(self, made: Session) -> Session:
        """Make a session the current one, unless another turn was faster."""
        if self._session is None:
            self._session = made
        return self._session

    def adopt(self, session: Session) -> Session:
        """Have a session that was forked closed with this kernel."""
        self._sessions.append(session)
        return session

    async def open_session(self, name: str | None = None) -> Session:
        """Make a new session by the settings; on the engine."""
        values = self.settings.values()
        session = Session(
            await self.models.default(values),
            history=self.history,
            artifacts=self.kept.artifacts,
            name=name,
            system_prompt=values.system_prompt or SYSTEM_PROMPT,
            max_rounds=values.max_rounds,
            max_parallel_tools=values.max_parallel_tools,
            max_result_chars=values.max_result_chars,
            max_input_tokens=values.max_input_tokens,
            answer_at_limit=values.answer_at_limit,
            approve=self._asker.approve,
            places=self.bridge.places.runners,
        )
        return self.adopt(session)

    async def use(self, session: Session) -> None:
        """Make a session the current one; the one that is left may be asked in elsewhere from now on."""
        left, self._session = self._session, session
        if left is not None and left is not session:
            await self.leave(left)

    async def leave(self, session: Session) -> None:
        """Let other kernels ask in a session, unless it is at work."""
        if not session.running:
            await self.history.release(session.id)

    async def forget(self, session_id: str) -> None:
        """Let go of a session that is deleted; a current one is followed by a new one.

        Raises:
            SessionBusy: A turn is running in it.
        """
        for session in self._sessions:
            if session.id == session_id:
                refuse_busy(session)
        self._sessions = [session for session in self._sessions if session.id != session_id]
        if self._session is not None and self._session.id == session_id:
            self._session = None

    # -- turns

    def ask(self, prompt: str, options: Options) -> Work[TurnState]:
        """Return a turn for a prompt, ready for either entry; called in the cell that asks."""
        return self._turn(options, lambda session, policy: session.ask(prompt, policy=policy), rerun=self.cells.request())

    def retry(self, options: Options) -> Work[TurnState]:
        """Return a turn that goes on with the current session's pending prompt."""
        return self._turn(options, lambda session, policy: session.retry(policy=policy), rerun=Request())

    def _turn(self, options: Options, begin: Callable[[Session, Policy | None], AsyncGenerator[Event, None]], *, rerun: Request) -> Work[TurnState]:
        standing = self.settings.values()
        values = self.settings.values({"max_rounds": options.max_rounds, "approve": options.approve})
        turn = _Stoppable()
        view = self.view(quiet=options.quiet, plain=values.view == "plain")
        say = _sayer()

        async def run() -> TurnState:
            session = await self._wanted(options)
            refuse_busy(session)
            tools = chosen(offered(self.shell.user_ns), options.tools)
            model = await self.models.wanted(options.model, values, session.model)
            say(await self.cells.replace(rerun, session))
            before = session.model
            session.tools, session.model, session.limits = tools, model, _limits(values)
            turn.attach(session)
            await self.use(session)
            state = session.state
            try:
                ended = await follow(begin(session, values.approve), lambda: session.state, view)
            finally:
                say(self.kept.note())
                if session.state is not None and session.state is not state:
                    self.cells.note(rerun, session.id, session.state)
                session.limits = _limits(standing)
                if options.model is not None and session.model is model:
                    session.model = before
            if ended.status == "completed" and len(session.turns) == 1 and not options.new and options.name is None:
                say(await self.kept.offer(session.id))
            if session is not self._session:
                await self.leave(session)
            self.kept.tidy()
            return ended

        return Work(run(), turn.cancel)

    async def _wanted(self, options: Options) -> Session:
        """Return the session that the options ask for; it becomes the current one when its turn is sure to begin."""
        if options.new:
            return await self.open_session(options.name)
        session = await self.current() if options.name is None else await self._named(options.name)
        return self.adopt(await session.fork()) if options.fork and session.turns else session

    async def _named(self, name: str) -> Session:
        """Return the newest session of a name, or a new one."""
        if self._session is not None and self._session.name == name:
            return self._session
        with suppress(StoreError):  # a history that cannot be read stops no turn
            for record in await self.history.list():
                if record.name == name:
                    return await self.resumed(record.id)
        return await self.open_session(name)

    async def resumed(self, session_id: str) -> Session:
        """Return a stored session: the object that this kernel has of it, else one that continues it."""
        for session in self._sessions:
            if session.id == session_id:
                return session
        session = await self.open_session()
        await session.resume(session_id)
        return session

    def view(self, *, quiet: bool, plain: bool) -> View:
        """Choose how a turn is shown in the cell that asks: the one place that knows which views there are."""
        if plain or not self.in_kernel:
            return AnswerView(sys.stdout) if quiet else PlainView(sys.stdout)
        version = sys.modules["agent_kernel"].__version__  # stands in the package's face, which floors below never import
        return AnswerDisplay(version=version) if quiet else DisplayView(version=version)

    def _kernel_loop(self) -> asyncio.AbstractEventLoop | None:
        """Return the loop that the kernel's main thread runs: tornado's wrapper knows it, once the kernel has started."""
        loop = getattr(getattr(getattr(self.shell, "kernel", None), "io_loop", None), "asyncio_loop", None)
        return loop if isinstance(loop, asyncio.AbstractEventLoop) else None

    async def _close(self) -> None:
        for session in self._sessions:
            session.cancel()
        for session in self._sessions:
            await session.close()
        await self.models.close()
        await self.kept.close()


class _Stoppable:
    """A turn that can be stopped before and after it has a session."""

    def __init__(self) -> None:
        self._session: Session | None = None
        self._stopped = False

    def attach(self, session: Session) -> None:
        """Name the session; a stop that came earlier counts now."""
        if self._stopped:
            raise asyncio.CancelledError
        self._session = session

    def cancel(self) -> None:
        """Stop the turn; from any thread, idempotent."""
        self._stopped = True
        if self._session is not None:
            self._session.cancel()


def refuse_busy(session: Session) -> None:
    """Refuse a second turn before anything of the running one is changed.

    Raises:
        SessionBusy: A turn is running.
    """
    if session.running:
        raise SessionBusy("A turn is running in this session. Wait for it, stop it, or start another session with --new.")


def _limits(values: Values) -> Limits:
    return Limits(
        max_rounds=values.max_rounds,
        max_parallel_tools=values.max_parallel_tools,
        max_result_chars=values.max_result_chars,
        max_input_tokens=values.max_input_tokens,
        answer_at_limit=values.answer_at_limit,
    )


def _sayer() -> Callable[[str | None], None]:
    """Return what prints a line, if there is one, into the cell that asks, from any thread."""
    stream = sys.stdout
    return lambda line: print(line, file=stream, flush=True) if line is not None else None  # the cell's own output
