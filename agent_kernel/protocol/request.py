"""What is asked of a model: the one value that a ``Model`` receives. model/ and tools/ meet here and nowhere else."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from agent_kernel.protocol.messages import Message


class ToolSpec(Struct, frozen=True, kw_only=True):
    """A tool as a model sees it; ``parameters`` is a JSON Schema (2020-12) object."""

    name: str
    description: str
    parameters: dict[str, Any]


class ModelRequest(Struct, frozen=True, kw_only=True):
    """One round's request: valid messages (each call answered once, in order), tools on offer, and their choice.

    Attributes:
        messages: The system message first, if there is one.
        tools: Tools on offer.
        tool_choice: ``auto``, ``none``, ``required`` or a tool's name.
    """

    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: str = "auto"
