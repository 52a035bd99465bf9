"""OfflineModel: no language model, no network, no chance; it calls the tools that a prompt names in Python call syntax.

It makes everything around a model visible without a key: streamed text, calls in fragments, tools in parallel, an answer that
reports their results. What it says it is, it is: it never pretends to understand a prompt.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Sequence

from agent_kernel.model.assemble import parse_arguments
from agent_kernel.model.offline_calls import Written, example_arguments, example_call, shown_call, written_calls
from agent_kernel.protocol.events import Delta, FinishDelta, TextDelta, ToolCallDelta
from agent_kernel.protocol.messages import AssistantMessage, ToolMessage, UserMessage
from agent_kernel.protocol.request import ModelRequest, ToolSpec

INTRODUCTION = (
    "I am the offline model: no language model answers here, and nothing leaves this machine. "
    "For a real one set `OPENAI_API_KEY` (OpenAI) or `OPENAI_BASE_URL` (any compatible server), then choose it with `%agent model NAME`."
)
SHOWN_LINES = 12
SHOWN_CHARS = 600


class OfflineModel:
    """A deterministic model in this process.

    Args:
        name: What the model is called.
        chunk: Characters per fragment.
        delay: Seconds between fragments, so that streaming can be seen; 0 only lets other tasks run.
    """

    def __init__(self, *, name: str = "offline", chunk: int = 24, delay: float = 0.01) -> None:
        if chunk < 1 or delay < 0:
            raise ValueError(f"chunk must be at least 1 and delay at least 0, not {chunk!r} and {delay!r}")
        self.name = name
        self._chunk = chunk
        self._delay = delay

    def __repr__(self) -> str:
        return f"OfflineModel({self.name!r})"

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta]:
        """Yield the answer's fragments: calls that the latest prompt writes, a report on their results, or an introduction."""
        text, calls = _decided(request)
        for piece in _pieces(text, self._chunk):
            yield TextDelta(text=piece)
            await asyncio.sleep(self._delay)
        for index, call in enumerate(calls):
            yield ToolCallDelta(index=index, id=f"offline-{len(request.messages)}-{index + 1}", name=call.name)
            for piece in _pieces(json.dumps(call.arguments, ensure_ascii=False), self._chunk):
                await asyncio.sleep(self._delay)
                yield ToolCallDelta(index=index, arguments=piece)
        yield FinishDelta(reason="tool_calls" if calls else "stop", model=self.name)


def _pieces(text: str, size: int) -> list[str]:
    return [text[start : start + size] for start in range(0, len(text), size)]


def _decided(request: ModelRequest) -> tuple[str, Sequence[Written]]:
    """Return the text and the calls of the answer."""
    last_user = max((place for place, message in enumerate(request.messages) if isinstance(message, UserMessage)), default=-1)
    results = [message for message in request.messages[last_user + 1 :] if isinstance(message, ToolMessage)]
    if results:
        return _report(request, results), ()
    prompt = request.messages[last_user].text if last_user >= 0 else ""
    found = written_calls(prompt, request.tools)
    if request.tool_choice == "none" and found.calls:
        names = ", ".join(f"`{shown_call(call.name, call.arguments)}`" for call in found.calls)
        return f"{INTRODUCTION}\n\nTools are switched off for this answer, so I did not call {names}.", ()
    calls = _chosen(request, found.calls)
    notes = "".join(f"{note}\n" for note in found.notes)
    if calls:
        count = "one call" if len(calls) == 1 else f"{len(calls)} calls, in parallel"
        return f"Offline model: your prompt writes {count}.\n{notes}", calls
    return f"{INTRODUCTION}\n\n{notes}{_offer(request.tools)}", ()


def _chosen(request: ModelRequest, calls: Sequence[Written]) -> Sequence[Written]:
    """Respect the tool choice: a forced one is called with example arguments where the prompt writes no call."""
    choice = request.tool_choice
    if choice in {"auto", "none"}:
        return calls
    wanted = [call for call in calls if choice in {"required", call.name}]
    if wanted:
        return wanted
    tools = [tool for tool in request.tools if choice in {"required", tool.name}]
    return [Written(name=tool.name, arguments=example_arguments(tool)) for tool in tools[:1]]


def _offer(tools: Sequence[ToolSpec]) -> str:
    if not tools:
        return "No tools are on offer. Define one with `@tool`, and I call it when your prompt writes the call."
    lines = ["Meanwhile I call the tools that your prompt names, several in parallel. Try one of these:", ""]
    for tool in tools:
        about = tool.description.strip().split("\n")[0]
        lines.append(f"- `{example_call(tool)}`{': ' if about else ''}{about}")
    return "\n".join(lines)


def _report(request: ModelRequest, results: Sequence[ToolMessage]) -> str:
    asked = {call.id: call for message in request.messages if isinstance(message, AssistantMessage) for call in message.tool_calls}
    count = "One call ended" if len(results) == 1 else f"{len(results)} calls ended"
    parts = [f"{count}; the offline model reports what came back."]
    for result in results:
        call = asked.get(result.call_id)
        shown = result.name if call is None else shown_call(result.name, _arguments(call.arguments))
        parts.append(f"**`{shown}`**: {result.status}\n\n{_fenced(_head(result.text))}")
    return "\n\n".join(parts)


def _arguments(text: str) -> dict[str, object]:
    try:
        return parse_arguments(text)
    except Exception:  # malformed ones were refused as the call's result; here they are only shown
        return {}


def _head(text: str) -> str:
    lines = text[: SHOWN_CHARS * 4].splitlines()
    head = "\n".join(lines[:SHOWN_LINES])[:SHOWN_CHARS]
    return head if len(head) >= len(text.rstrip("\n")) else f"{head}\n... (the model got {len(text):,} characters)"


def _fenced(text: str) -> str:
    """Put text into a code fence that it cannot close."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{text}\n{fence}"
