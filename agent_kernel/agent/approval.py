"""Who may run a tool: the policy, decided purely, and the question to a person.

The stricter of tool and turn policy wins, except that a turn's ``allow`` lifts ``ask``; ``deny`` is never lifted. Questions of one turn
are put one after another, so prompts never mix; waiting for the answer uses up no tool's timeout.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from enum import Enum
from typing import Any, Literal

from msgspec import Struct

from agent_kernel.agent.foreign import described, tamed
from agent_kernel.agent.threads import in_thread
from agent_kernel.errors import AgentKernelError
from agent_kernel.protocol.messages import ToolCall
from agent_kernel.tools.tool import Tool

Policy = Literal["allow", "ask", "deny"]


class Always(Enum):
    """The answer that allows a tool for the rest of its session."""

    ALWAYS = "always"


ALWAYS = Always.ALWAYS
Decision = bool | str | Always | None
Approve = Callable[[ToolCall, str], Decision | Awaitable[Decision]]
_STRICTNESS: tuple[Policy, ...] = ("allow", "ask", "deny")


class Verdict(Struct, frozen=True, kw_only=True):
    """An answer: whether the call may run, and what the person said."""

    allowed: bool
    comment: str | None = None


def effective_policy(tool: Policy, turn: Policy | None) -> Policy:
    """Return the policy that holds for a call."""
    if turn is None or tool == "deny":
        return tool
    if turn == "allow":
        return "allow"
    return max(tool, turn, key=_STRICTNESS.index)


def reason_for(tool: Policy, name: str) -> str:
    """Say why a person is asked."""
    return f"{name} asks before each run." if tool == "ask" else "This turn asks before each tool."


class Approver:
    """Puts the questions of one turn to its ``approve`` hook."""

    def __init__(self, approve: Approve | None, allowed: set[Tool]) -> None:
        """Keep the hook (None: nobody is there to ask, so what asks is denied) and the tools that the session allows for good."""
        self._approve, self._allowed = approve, allowed
        self._one_at_a_time = asyncio.Lock()

    def allows(self, tool: Tool) -> bool:
        """Tell whether a person has allowed this very tool for the rest of the session; one defined anew is asked about again."""
        return tool in self._allowed

    async def ask(self, call: ToolCall, tool: Tool, reason: str) -> Verdict:
        """Return the person's verdict.

        Raises:
            AgentKernelError: The hook raised.
        """
        if self._approve is None:
            return Verdict(allowed=False, comment="nobody is there to approve it")
        async with self._one_at_a_time:
            if self.allows(tool):
                return Verdict(allowed=True)
            try:
                answer = await self._answer(self._approve, call, reason)
            except BaseException as raised:  # a user's hook may raise anything
                error = tamed(raised)
                raise AgentKernelError(f"The approve hook failed on {call.name}: {described(error)}") from error
        if answer is ALWAYS:
            self._allowed.add(tool)
            return Verdict(allowed=True, comment="always in this session")
        if isinstance(answer, str):
            return Verdict(allowed=False, comment=answer)
        return Verdict(allowed=answer is True)

    @staticmethod
    async def _answer(approve: Approve, call: ToolCall, reason: str) -> Decision:
        answer: Decision = await call_hook(approve, call, reason)
        return answer


async def call_hook(hook: Callable[..., Any], *arguments: Any) -> Any:
    """Call a sync hook in a thread (it may block on a person) or await an async one."""
    if inspect.iscoroutinefunction(hook) or inspect.iscoroutinefunction(getattr(hook, "__call__", None)):  # noqa: B004 - the bound method is what is asked about
        return await hook(*arguments)
    future, _ = in_thread(lambda: hook(*arguments), name="agent-kernel-hook")
    answer = await future
    return await answer if inspect.isawaitable(answer) else answer
