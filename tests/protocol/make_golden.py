"""Writes the golden files of tests/data/golden: run by hand when an event or the fold changes, and read the difference.

python tests/protocol/make_golden.py
"""

import asyncio
import itertools
import json
import pathlib
import re

import msgspec

from agent_kernel.agent.session import Session
from agent_kernel.errors import ModelConnectionError
from agent_kernel.model.scripted import ScriptedModel
from agent_kernel.protocol.events import Event, ReasoningDelta, ToolCallDelta, UsageDelta
from agent_kernel.protocol.fold import fold
from agent_kernel.protocol.messages import ToolCall, Usage
from agent_kernel.tools.context import ToolContext
from agent_kernel.tools.tool import tool

FOLDER = pathlib.Path(__file__).parent.parent / "data" / "golden"


class Patient(ScriptedModel):
    max_retries = 2


class NoWait:
    async def sleep(self, seconds):
        return None

    def jitter(self):
        return 1.0


@tool
def revenue(region: str, context: ToolContext) -> dict:
    """Look a region's revenue up."""
    context.progress(1, 2, f"asking for {region}")
    context.note(source="table")
    if region == "nowhere":
        raise ValueError("no such region")
    return {"region": region, "revenue": 12.5}


@tool(approve="ask")
def write(path: str) -> str:
    """Write a file."""
    return "written"


@tool
def log() -> str:
    """Return a long log."""
    return "".join(f"line {n}\n" for n in range(400))


def call(number, name, **arguments):
    return ToolCall(id=f"call_{number}", name=name, arguments=json.dumps(arguments))


def fragments(number, name, *pieces):
    first = ToolCallDelta(index=number, id=f"call_{number}", name=name, arguments=pieces[0])
    return [first, *(ToolCallDelta(index=number, arguments=piece) for piece in pieces[1:])]


USAGE = UsageDelta(usage=Usage(input_tokens=30, output_tokens=9, cached_tokens=12, reasoning_tokens=2))

SCENES = {
    "plain_answer": {"script": [["Hello", " wörld ", "😀", USAGE]]},
    "parallel_tools": {
        "script": [
            [
                ReasoningDelta(text="let me "),
                ReasoningDelta(text="look"),
                "Looking.",
                *fragments(0, "revenue", '{"region"', ': "north"}'),
                *fragments(1, "revenue", '{"region": "nowhere"}'),
                USAGE,
            ],
            [*fragments(2, "log", "{}")],
            ["North has **12.5**.", USAGE],
        ],
        "options": {"max_result_chars": 1_000, "max_parallel_tools": 1},
    },
    "retried_and_refused": {
        "script": [
            [ReasoningDelta(text="hm"), *fragments(0, "revenue", '{"re'), ModelConnectionError("the connection broke")],
            ["par", ModelConnectionError("the connection broke again")],
        ]
    },
    "approvals": {
        "script": [[call(0, "write", path="a"), call(1, "write", path="b"), call(2, "revenu")], "Done."],
        "options": {"approve": lambda asked, reason: True if "a" in asked.arguments else "not there"},
    },
    "limit": {
        "script": [call(0, "revenue", region="x"), call(1, "revenue", region="y"), call(2, "revenue", region="z"), "What I have."],
        "options": {"max_rounds": 1, "answer_at_limit": True, "on_limit": iter([True, True, False]).__next__},
    },
    "cancelled": {
        "script": [["So far ", "so good", call(0, "revenue", region="x")], ["And then", " ", asyncio.Event()]],
        "cancel": "TextAppended And then",
    },
}


async def record(scene):
    options = dict(scene.get("options", {}))
    if "on_limit" in options:
        decide = options["on_limit"]
        options["on_limit"] = lambda reason: decide()
    session = Session(Patient(scene["script"]), tools=[revenue, write, log], clock=NoWait(), **options)
    events = []
    try:
        async for event in session.ask("How did the north do?"):
            events.append(event)
            if f"{type(event).__name__} {getattr(event, 'text', '')}" == scene.get("cancel"):
                session.cancel()
    except ModelConnectionError:
        pass
    await session.close()
    return events


def normal(events):
    """Make what differs from run to run the same: ids, times, paths."""
    raw = msgspec.to_builtins(events)
    for number, event in enumerate(raw):
        event["turn_id"], event["at"] = "turn-1", 1_800_000_000.0 + number / 8
        if "session_id" in event:
            event["session_id"] = "session-1"
        if "result" in event:
            event["result"]["elapsed"] = 0.25
            if "traceback" in event["result"]["metadata"]:
                event["result"]["metadata"]["traceback"] = "Traceback: ..."
    text = re.sub(r"call_[0-9a-f]{16}", lambda match: f"call_{names[match[0]]}", json.dumps(raw)) if (names := numbered(raw)) else json.dumps(raw)
    return msgspec.convert(json.loads(text), list[Event])


def numbered(raw):
    counter = itertools.count(100)
    names = {}
    for found in re.findall(r"call_[0-9a-f]{16}", json.dumps(raw)):
        if found not in names:
            names[found] = next(counter)
    return names


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, scene in SCENES.items():
        events = normal(asyncio.run(record(scene)))
        content = {"events": msgspec.to_builtins(events), "state": msgspec.to_builtins(fold(events).snapshot())}
        (FOLDER / f"{name}.json").write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")
        print(name, len(events))


if __name__ == "__main__":
    main()
