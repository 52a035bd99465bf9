"""Tools of every kind of callable, their options, binding and errors."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import json
from dataclasses import dataclass
from typing import Any

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_kernel.errors import InvalidArguments, ToolError
from agent_kernel.protocol.request import ToolSpec
from agent_kernel.tools.context import ToolContext
from agent_kernel.tools.serialise import drain
from agent_kernel.tools.tool import Tool, tool


@tool
def revenue(region: str, year: int = 2026) -> str:
    """Revenue of a region."""
    return f"{region} {year}"


async def fetch(n: int) -> int:
    await asyncio.sleep(0)
    return n


async def count(n: int):
    for number in range(n):
        yield str(number)


class Counter:
    """A class that counts."""

    def __call__(self, n: int) -> int:
        """Count on."""
        return n + 1


class AsyncCallable:
    async def __call__(self, n: int) -> int:
        return n + 1


class Desk:
    def __init__(self, label: str) -> None:
        self.label = label

    @tool
    def look(self, n: int) -> str:
        """Look."""
        return f"{self.label}{n}"

    @tool(serial=True, timeout=5)
    async def wait(self, n: int) -> str:
        return f"{self.label}{n}"

    @tool
    @classmethod
    def outer_class(cls, n: int) -> str:
        return f"{cls.__name__}{n}"

    @classmethod
    @tool
    def inner_class(cls, n: int) -> str:
        return f"{cls.__name__}{n}"

    @tool
    @staticmethod
    def outer_static(n: int) -> str:
        return f"static{n}"

    @staticmethod
    @tool
    def inner_static(n: int) -> str:
        return f"static{n}"

    def plain(self, n: int) -> str:
        return f"{self.label}{n}"


def wrapped(f):
    @functools.wraps(f)
    def inner(*args: Any, **kwargs: Any) -> Any:
        return f(*args, **kwargs)

    return inner


def test_a_plain_decorator_takes_name_description_and_schema_from_the_function():
    assert revenue.spec == ToolSpec(
        name="revenue",
        description="Revenue of a region.",
        parameters={
            "type": "object",
            "properties": {"region": {"type": "string"}, "year": {"type": "integer", "default": 2026}},
            "required": ["region"],
            "additionalProperties": False,
        },
    )


def test_a_decorated_function_is_still_the_function():
    assert revenue("north") == "north 2026"
    assert inspect.signature(revenue) == inspect.signature(revenue.call)
    assert (revenue.__name__, revenue.__doc__, revenue.__module__) == ("revenue", "Revenue of a region.", __name__)
    assert repr(revenue) == "<Tool revenue(region: 'str', year: 'int' = 2026)>"


def test_options_override_what_the_function_says():
    made = tool(name="n-1", description="d", serial=True, key="k", timeout=None, approve="ask", runs_on="main")(revenue.call)
    assert (made.name, made.description, made.serial, made.key, made.timeout, made.approve, made.runs_on) == (
        "n-1",
        "d",
        True,
        "k",
        None,
        "ask",
        "main",
    )
    plain = tool()(revenue.call)
    assert (plain.serial, plain.key, plain.timeout, plain.approve, plain.runs_on) == (False, None, 60, "allow", "auto")


@pytest.mark.parametrize(
    ("made", "is_async"),
    [
        (tool(fetch), True),
        (tool(count), True),
        (tool(functools.partial(functools.partial(fetch))), True),
        (tool(Counter()), False),
        (Tool(call=AsyncCallable(), name="a"), True),
        (tool(functools.partial(AsyncCallable())), True),
        (Desk("x").wait, True),
        (Desk("x").look, False),
        (tool(Desk("x").plain), False),
        (tool(wrapped(revenue.call)), False),
        (revenue, False),
    ],
    ids=repr,
)
def test_what_runs_on_the_loop(made, is_async):
    assert made.is_async is is_async


def test_async_functions_and_generators_are_given_back_unawaited():
    async def main():
        assert await tool(fetch).bind({"n": "3"}).run(None) == 3
        assert [item async for item in tool(count).bind({"n": 2}).run(None)] == ["0", "1"]

    asyncio.run(main())


def test_a_tool_can_be_described_anew():
    again = tool(timeout=5, name="again")(tool(fetch))
    assert (again.is_async, again.timeout, again.name, again.call) == (True, 5, "again", fetch)
    assert tool(functools.partial(tool(fetch), n=1)).is_async
    ready = Tool(name="lookup", parameters=SCHEMA, call=fetch)
    assert tool(ready).parameters == SCHEMA


def test_callable_objects_speak_through_their_call_method():
    made = tool(Counter())
    assert (made.name, made.description) == ("Counter", "Count on.")
    assert made.bind({"n": 1}).run(None) == 2


def test_a_decorated_wrapper_shows_what_it_wraps():
    made = tool(wrapped(revenue.call))
    assert made.parameters == revenue.parameters
    assert made.bind({"region": "n"}).run(None) == "n 2026"


@pytest.mark.parametrize("name", ["look", "outer_class", "inner_class", "outer_static", "inner_static"])
def test_tools_as_methods(name):
    desk = Desk("d")
    made = getattr(desk, name)
    expected = {"look": "d3", "outer_class": "Desk3", "inner_class": "Desk3"}.get(name, "static3")
    assert list(made.parameters["properties"]) == ["n"]
    assert made.bind({"n": "3"}).run(None) == expected
    assert made(3) == expected


def test_a_method_keeps_its_options_and_the_class_keeps_the_function():
    assert (Desk("x").wait.serial, Desk("x").wait.timeout) == (True, 5)
    assert Desk.look(Desk("y"), 1) == "y1"


@pytest.mark.parametrize(
    "options",
    [
        {"timeout": 0}, {"timeout": -1}, {"timeout": True}, {"timeout": float("nan")}, {"timeout": float("inf")}, {"timeout": "5"}, {"approve": "maybe"},
        {"approve": True}, {"runs_on": "gpu"}, {"serial": 1}, {"key": 3}, {"name": "a b"}, {"name": ""}, {"name": "x" * 65}, {"name": "größe"}, {"name": 3},
    ],
    ids=str,
)  # fmt: skip
def test_option_values_out_of_range_raise(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        tool(**options)(revenue.call)


def test_unknown_options_raise():
    with pytest.raises(TypeError):
        tool(retries=3)
    with pytest.raises(TypeError):
        Tool("lookup", call=len)


@pytest.mark.parametrize("f", [lambda x: x, functools.partial(lambda x: x)])
def test_a_function_without_a_fit_name_asks_for_one(f):
    with pytest.raises(ToolError, match="name="):
        tool(f)
    assert tool(name="identity")(f).bind({"x": 1}).run(None) == 1


@pytest.mark.parametrize("thing", [3, "text", None])
def test_what_cannot_be_called_is_no_tool(thing):
    with pytest.raises(ToolError, match="callable"):
        Tool(call=thing, name="x")


@dataclass
class Filter:
    column: str
    year: int

    def __post_init__(self):
        if self.year < 0:
            raise SystemExit(1) if self.year == -2 else ValueError("year is before all years")


class Limits(pydantic.BaseModel):
    top: int
    bottom: int = 0


def search(filters: list[Filter], limits: Limits, region: str, page: int = 1): ...


def test_everything_that_does_not_fit_is_named_in_one_error():
    arguments = {
        "filters": [{"column": "a", "year": 1}, {"column": 3, "yeer": 1}, {"column": "a", "year": "x"}],
        "limits": {"top": "many", "bottom": []},
        "page": "2.5",
        "regoin": "n",
        "odd one": 1,
    }
    with pytest.raises(InvalidArguments) as caught:
        tool(search).bind(arguments)
    text = str(caught.value)
    for part in (
        "search",
        "filters[1].column: expected a string, got integer 3",
        "filters[1].yeer: unknown (did you mean year?)",
        "filters[1].year: missing",
        'filters[2].year: expected an integer, got string "x"',
        "limits.top: ",
        "limits.bottom: ",
        'page: expected an integer, got string "2.5"',
        "regoin: unknown (did you mean region?)",
        'odd one"]: unknown',
        "region: missing",
    ):
        assert part in text


def test_many_problems_are_counted_beyond_thirty():
    with pytest.raises(InvalidArguments, match="and 70 more"):
        tool(search).bind({"limits": {"top": 1}, "region": "n", "filters": [3] * 100})


def test_what_a_class_raises_is_a_problem_at_its_path():
    with pytest.raises(InvalidArguments, match=r"filters\[0\]: ValueError: year is before all years"):
        tool(search).bind({"filters": [{"column": "a", "year": -1}], "limits": {"top": 1}, "region": "n"})


def test_a_problem_inside_an_optional_object_keeps_its_path():
    def f(only: Filter | None = None): ...

    with pytest.raises(InvalidArguments, match=r"only\.year: missing"):
        tool(f).bind({"only": {"column": "a"}})


def test_arguments_nested_too_deeply_are_refused():
    @dataclass
    class Link:
        next: Link | None = None

    def f(link: Link): ...

    f.__annotations__["link"] = Link
    nested: dict[str, Any] = {}
    for _ in range(5_000):
        nested = {"next": nested}
    with pytest.raises(InvalidArguments, match="deep"):
        tool(f).bind({"link": nested})


def test_a_typeerror_in_the_body_is_the_tools_own():
    def f(a: int):
        return a + "x"

    bound = tool(f).bind({"a": 1})
    with pytest.raises(TypeError):
        bound.run(None)


def test_binding_has_no_effect():
    calls = []

    def f(a: int):
        calls.append(a)

    bound = tool(f).bind({"a": 1})
    assert calls == []
    bound.run(None)
    assert calls == [1]


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
    )
)
def test_any_json_value_is_taken_or_refused_with_invalid_arguments(value):
    for made in (_TAKES_ALL, _TAKES_UNIONS):
        bound = None
        with contextlib.suppress(InvalidArguments):
            bound = made.bind({"a": value})
        assert bound is None or set(bound.values) == {"a"}
    assert _TAKES_ALL.bind({"a": value}).values["a"] is value


def _all(a: Any): ...


def _unions(a: float | bool | list[Filter | int] | dict[str, Filter] | None): ...


_TAKES_ALL, _TAKES_UNIONS = tool(_all), tool(_unions)


def test_keys():
    def f(path: str, mode: str = "r", *, ctx: ToolContext): ...

    assert tool(f).bind({"path": "x"}).key is None
    assert tool(key="disk")(f).bind({"path": "x"}).key == "disk"
    assert tool(key=lambda path: path)(f).bind({"path": "x"}).key == "x"
    assert tool(key=lambda path, mode: (path, mode))(f).bind({"path": "x"}).key == "('x', 'r')"
    assert tool(key=lambda **values: sorted(values))(f).bind({"path": "x"}).key == "['mode', 'path']"


def test_a_key_function_that_raises_is_an_error_of_the_call():
    bound = tool(key=lambda path: 1 / 0)(lambda_name).bind({"path": "x"})
    with pytest.raises(InvalidArguments, match=r"key function of lambda_name.*ZeroDivisionError"):
        _ = bound.key


def lambda_name(path: str): ...


SCHEMA = {"type": "object", "properties": {"word": {"type": "string"}, "n": {"type": "integer", "enum": [1, 2]}, "o": {}}, "required": ["word"]}


def test_a_ready_schema_passes_arguments_as_they_are():
    made = Tool(name="lookup", description="Look up.", parameters=SCHEMA, call=lambda **given: given)
    assert made.spec == ToolSpec(name="lookup", description="Look up.", parameters=SCHEMA)
    assert made.bind({"word": "x", "n": 2.0, "o": [None]}).run(None) == {"word": "x", "n": 2.0, "o": [None]}


def test_a_ready_schema_names_all_problems():
    def f(word, n=1, o=None, *, ctx: ToolContext): ...

    made = Tool(name="lookup", parameters=SCHEMA, call=f)
    with pytest.raises(InvalidArguments) as caught:
        made.bind({"wrod": "x", "n": True, "ctx": 1})
    text = str(caught.value)
    for part in ("word: missing", "wrod: unknown (did you mean word?)", "n: expected integer, got boolean true", "ctx: unknown"):
        assert part in text
    with pytest.raises(InvalidArguments, match="n: expected one of 1, 2, got integer 3"):
        made.bind({"word": "x", "n": 3})


def test_a_ready_schema_still_gets_its_context(make_context):
    def f(word, ctx: ToolContext):
        return word, ctx

    context, _ = make_context()
    made = Tool(name="lookup", parameters={"properties": {"word": {}}}, call=f)
    assert made.bind({"word": 1}).run(context) == (1, context)
    assert made.parameters["type"] == "object"


@pytest.mark.parametrize(
    "schema", [{"type": "array"}, {"properties": []}, {"properties": {"a": {"default": float("nan")}}}, {"properties": {"a": object()}}], ids=str
)
def test_a_ready_schema_that_is_none_raises(schema):
    with pytest.raises(ToolError, match="lookup"):
        Tool(name="lookup", parameters=schema, call=print)


def test_sync_generators_are_drained_as_the_call(make_context):
    def words():
        yield "a"
        yield "b"

    def failing():
        yield 1
        raise RuntimeError("in the body")

    context, reports = make_context()
    assert tool(words).bind({}).run(context) == "ab"
    assert reports == [(None, None, "a"), (None, None, "b")]
    with pytest.raises(RuntimeError, match="in the body"):
        tool(failing).bind({}).run(context)


def test_async_generators_are_drained_with_a_bound(make_context):
    async def endless(closed):
        try:
            number = 0
            while True:
                yield number
                number += 1
        finally:
            closed.append(True)

    async def main():
        closed = []
        context, reports = make_context()
        assert await drain(count(3), context) == "012"
        assert [text for _, _, text in reports] == ["0", "1", "2"]
        assert await drain(endless(closed), max_items=3) == [0, 1, 2, "[stopped after 3 items; there are more]"]
        assert closed == [True]
        assert await drain(count(9), max_items=2) == "01\n[stopped after 2 items; there are more]"
        assert await drain(count(2), max_items=2) == "01"

    asyncio.run(main())


def test_a_spec_is_json():
    assert json.loads(json.dumps(revenue.spec.parameters)) == revenue.parameters
