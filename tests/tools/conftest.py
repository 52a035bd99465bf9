"""What the tests of tools share: a validator for schemas, a notebook-like namespace, and a context that keeps its reports."""

from __future__ import annotations

import jsonschema
import pytest

from agent_kernel.tools.context import ToolContext


@pytest.fixture
def check_schema():
    """Fail unless it is a valid JSON Schema (2020-12) of an object that accepts the arguments."""

    def check(schema, *accepted):
        jsonschema.Draft202012Validator.check_schema(schema)
        validator = jsonschema.Draft202012Validator(schema)
        for arguments in accepted:
            validator.validate(arguments)

    return check


@pytest.fixture
def cell():
    """Run source as a notebook's cells do: one namespace named __main__, and no file behind it."""
    namespace = {"__name__": "__main__"}

    def run(source):
        exec(compile(source, "<cell>", "exec"), namespace)  # noqa: S102 - that is what a cell is
        return namespace

    return run


@pytest.fixture
def make_context():
    def make(**changes):
        reports = []
        fields = {"session_id": "s", "turn_id": "t", "round": 1, "index": 0, "call_id": "c1", "name": "f"} | changes
        context = ToolContext(**fields, report=lambda done, total, text: reports.append((done, total, text)))
        return context, reports

    return make
