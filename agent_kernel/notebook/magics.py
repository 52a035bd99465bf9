"""`%agent` and `%%agent`: a line and a body become a turn or a command, on the entry that the cell has.

The transformer calls the magic whose name ends in ``_awaited`` where a cell may await. Prompts are never expanded or formatted. Errors
of ours leave with a short text in place of a traceback.
"""

from __future__ import annotations

from typing import Any

from IPython.core.magic import no_var_expand
from IPython.display import display

from agent_kernel.errors import AgentKernelError, TurnInterrupted
from agent_kernel.notebook.app import App
from agent_kernel.notebook.bridge import Work
from agent_kernel.notebook.commands import help_text, match
from agent_kernel.notebook.commands_history import Shown
from agent_kernel.notebook.options import Options, parse, prompt_of
from agent_kernel.protocol.fold import TurnState

NAME = "agent"
SPARE_NAME = "ak"  # where another extension has taken the name

STOPPED = "The turn was stopped. Continue it with %agent retry."


class AgentMagics:
    """The magics of one shell; extension.py registers them under their names."""

    def __init__(self, app: App) -> None:
        """Take the App that answers."""
        self.app = app

    @no_var_expand
    def agent(self, line: str, cell: str | None = None) -> Any:
        """Start an agent turn: %agent help shows how."""
        try:
            work = self._work(line, cell)
            return None if work is None else self._ended(self.app.bridge.run_blocking(work))
        except AgentKernelError as error:
            raise self._short(error) from error.__cause__

    @no_var_expand
    def agent_awaited(self, line: str, cell: str | None = None) -> Any:
        """Return the coroutine of an agent turn; cells that may await are rewritten to this."""
        return self._awaited(line, cell)

    async def _awaited(self, line: str, cell: str | None) -> Any:
        try:
            work = self._work(line, cell)
            return None if work is None else self._ended(await self.app.bridge.run_awaited(work))
        except AgentKernelError as error:
            raise self._short(error) from error.__cause__

    def _work(self, line: str, cell: str | None) -> Work[Any] | None:
        """Return what the engine is to do; None where a help text was all."""
        parsed = parse(line)
        prompt = prompt_of(parsed.rest, cell)
        if parsed.options.help or not prompt.strip():
            print(help_text())  # noqa: T201  # the cell's own output
            return None
        command = None if cell is not None or parsed.ended else match(prompt, with_options=parsed.options != Options())
        if command is None:
            return self.app.ask(prompt, parsed.options)
        found, arguments = command
        if found.run is None:
            return self.app.retry(parsed.options)
        return Work(found.run(self.app, arguments))

    def _ended(self, result: TurnState | Shown | str) -> Any:
        """Show a command's text or value, or return a turn's state; a turn that was stopped ends its cell."""
        if isinstance(result, Shown):
            display(result.value)  # type: ignore[no-untyped-call]  # IPython has no annotation here
            return result.value
        if isinstance(result, str):
            print(result)  # noqa: T201  # the cell's own output
            return None
        if result.status == "cancelled":
            raise TurnInterrupted(STOPPED)
        return result

    def _short(self, error: AgentKernelError) -> AgentKernelError:
        """Let IPython show one or two lines for an error of ours instead of a traceback."""
        lines = [f"{type(error).__name__}: {error}"]
        if error.state is not None:
            lines.append("The prompt is kept: %agent retry sends it again.")
        error._render_traceback_ = lambda: lines  # type: ignore[method-assign]  # IPython's hook, looked up on the exception
        return error
