"""The table of signatures: two members a class, each described, validated, and read back into annotated values."""

from __future__ import annotations

import collections
import datetime as dt
import enum
import functools
import json
import typing as t
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from pathlib import Path, PurePosixPath

import annotated_types
import msgspec
import pydantic
import pytest

from agent_kernel.errors import InvalidArguments, ToolError
from agent_kernel.tools.context import ToolContext
from agent_kernel.tools.tool import Tool, tool

T = t.TypeVar("T")


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Mixed(enum.Enum):
    ONE = 1
    TWO = "two"
    PAIR = (3, 4)  # no JSON scalar: known by its name


class Bits(enum.Flag):
    A = 1
    B = 2


@dataclass
class Point:
    x: int
    y: float = 0.0


@dataclass
class Circle:
    radius: float
    around: Point = field(default_factory=lambda: Point(0))


@dataclass
class Scaled:
    value: int
    by: InitVar[int] = 2

    def __post_init__(self, by):
        self.value *= by


@dataclass
class Node:
    name: str
    children: list[Node] = field(default_factory=list)


@dataclass
class Box(t.Generic[T]):
    content: T


class Place(t.TypedDict):
    city: str
    zip: t.NotRequired[int]


class PartialPlace(t.TypedDict, total=False):
    city: t.Required[str]
    zip: int


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    column: str
    limit: int = msgspec.field(default=10, name="max")


class Tree(msgspec.Struct):
    left: Tree | None = None


class Cat(msgspec.Struct, tag=True):
    lives: int = 9


class Dog(msgspec.Struct, tag=True):
    lives: int = 1


class User(pydantic.BaseModel):
    name: str
    born: dt.date | None = None


class Team(pydantic.BaseModel):
    members: list[User]
    lead: Team | None = None


class Pair(t.NamedTuple):
    a: int
    b: str = "b"


UserId = t.NewType("UserId", int)
Json = t.Union[dict[str, "Json"], list["Json"], int, str]  # noqa: UP007 - an alias that names itself as text

# Each class with why it is one; each row: annotation, what a model sends, what the tool gets.
ROWS = {
    # scalars: the JSON value is the Python value
    "scalar": [(str, "a", "a"), (bool, True, True)],
    # numbers written in another JSON form are converted, exactly
    "number-int": [(int, "3", 3), (int, 3.0, 3), (int, 2**53 + 1, 2**53 + 1)],
    "number-float": [(float, "3.5", 3.5), (float, 3, 3.0)],
    # booleans as text, in JSON's own spelling
    "bool-text": [(bool, "true", True), (bool, "false", False)],
    # null is a value of its own
    "none": [(None, None, None), (type(None), None, None)],
    # anything goes, as it is
    "any": [(t.Any, {"a": [1]}, {"a": [1]}), (object, "x", "x")],
    # Literal: constants, whatever their type; true is not 1
    "literal": [(t.Literal["a", "b"], "b", "b"), (t.Literal[1.5, 2], 1.5, 1.5), (t.Literal[Color.RED], "red", Color.RED)],
    # Enum: the value stands for the member; a member whose value is no JSON is known by name
    "enum": [(Color, "red", Color.RED), (Mixed, "PAIR", Mixed.PAIR), (Mixed, 1, Mixed.ONE)],
    # Flag: several members in one integer
    "flag": [(Bits, 3, Bits.A | Bits.B), (Bits, 1, Bits.A)],
    # optional: null or the other
    "optional": [(t.Optional[int], None, None), (int | None, "3", 3)],  # noqa: UP045 - the old spelling is tested
    # unions by JSON type: the value's own type wins over a conversion
    "union-exact": [(int | str, "3", "3"), (str | int, 3, 3), (float | int, 3, 3), (bool | str, "true", "true")],
    # unions that are told apart by what converts
    "union-order": [(dt.datetime | str, "2026-01-02T03:04:05", dt.datetime(2026, 1, 2, 3, 4, 5)), (dt.datetime | str, "soon", "soon")],  # noqa: DTZ001
    "union-enum": [(Color | str, "red", Color.RED), (Color | str, "green", "green")],
    # unions of objects: the fields decide
    "union-objects": [(Point | Circle, {"radius": 1}, Circle(1.0)), (Circle | dict, {"z": 1}, {"z": 1}), (User | Point, {"x": 1}, Point(1))],
    # unions of arrays: the items decide, strictly first
    "union-arrays": [(list[int] | list[str], ["3"], ["3"]), (list[int] | set[str], [3], [3])],
    # tagged Structs: the tag decides
    "union-tagged": [(Cat | Dog, {"type": "Dog", "lives": 2}, Dog(2)), (Cat | Dog, {"type": "Cat"}, Cat())],
    # arrays of one item type
    "list": [(list[int], ["1", 2], [1, 2]), (list, [1, "a"], [1, "a"])],
    "abstract": [(Sequence[int], [1], [1]), (Iterable[str], ["a"], ["a"]), (Mapping[str, int], {"a": "1"}, {"a": 1})],
    "tuple": [(tuple[int, ...], [1, "2"], (1, 2)), (tuple[int, str], ["1", "a"], (1, "a")), (tuple, [1], (1,))],
    "set": [(set[int], [1, 1, "2"], {1, 2}), (frozenset[str], ["a"], frozenset("a"))],
    # objects without named fields; keys are text in JSON
    "dict": [(dict, {"a": 1}, {"a": 1}), (dict[int, Color], {"1": "red"}, {1: Color.RED})],
    # records: objects with named fields
    "dataclass": [(Point, {"x": "1"}, Point(1)), (Circle, {"radius": 1, "around": {"x": 2}}, Circle(1.0, Point(2)))],
    "dataclass-odd": [(Scaled, {"value": 2, "by": 3}, Scaled(2, 3)), (Box[int], {"content": "3"}, Box(3))],
    "typeddict": [(Place, {"city": "x"}, {"city": "x"}), (PartialPlace, {"city": "x", "zip": "1"}, {"city": "x", "zip": 1})],
    "struct": [(Filter, {"column": "a", "max": "3"}, Filter(column="a", limit=3)), (Cat, {"lives": 3}, Cat(3))],
    "namedtuple": [(Pair, {"a": 1}, Pair(1)), (Pair, {"a": "1", "b": "c"}, Pair(1, "c"))],
    "pydantic": [(User, {"name": "a", "born": "2020-01-02"}, User(name="a", born=dt.date(2020, 1, 2))), (User | None, None, None)],
    # what contains itself
    "recursive": [
        (Node, {"name": "a", "children": [{"name": "b"}]}, Node("a", [Node("b")])),
        (Tree, {"left": {"left": None}}, Tree(Tree(None))),
        (Team, {"members": [], "lead": {"members": [{"name": "a"}]}}, Team(members=[], lead=Team(members=[User(name="a")]))),
        (Json, {"a": [1, {"b": "c"}]}, {"a": [1, {"b": "c"}]}),
    ],
    # text that stands for something else
    "dates": [(dt.date, "2026-01-02", dt.date(2026, 1, 2)), (dt.datetime, "2026-01-02T03:04:05Z", dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC))],
    "path": [(Path, "/a/b", Path("/a/b")), (PurePosixPath, "a", PurePosixPath("a"))],
    "bytes": [(bytes, "aGk=", b"hi"), (bytes, "", b"")],
    # names for other types
    "alias": [(UserId, "3", 3), (t.List[int], ["1"], [1]), (T, "x", "x")],  # noqa: UP006 - the old spelling is tested
    # constraints and descriptions beside the type
    "annotated": [
        (t.Annotated[int, msgspec.Meta(ge=1, le=9)], "3", 3),
        (t.Annotated[str, annotated_types.Len(1, 3)], "abc", "abc"),
        (t.Annotated[int | None, pydantic.Field(ge=1, description="n")], None, None),
        (t.Annotated[list[int], msgspec.Meta(min_length=1)], ["1"], [1]),
    ],
}
CASES = [
    pytest.param(annotation, sent, got, id=f"{name}-{number}") for name, rows in ROWS.items() for number, (annotation, sent, got) in enumerate(rows)
]


def test_each_class_of_the_table_has_two_members():
    assert all(len(rows) >= 2 for rows in ROWS.values())


@pytest.mark.parametrize(("annotation", "sent", "got"), CASES)
def test_a_signature_round_trips(annotation, sent, got, check_schema):
    def f(value):
        return value

    f.__annotations__["value"] = annotation
    made = tool(f)
    check_schema(json.loads(json.dumps(made.parameters, allow_nan=False)))
    bound = made.bind(json.loads(json.dumps({"value": sent})))
    assert bound.values == {"value": got}
    result = bound.run(None)
    assert result == got
    assert type(result) is type(got)


@pytest.mark.parametrize(("annotation", "sent", "got"), [case for case in CASES if not case.id.startswith(("number", "bool-text", "union-arrays"))])
def test_the_schema_accepts_what_it_describes_in_its_own_json_form(annotation, sent, got, check_schema):
    def f(value): ...

    f.__annotations__["value"] = annotation
    natural = _without_number_text(sent)
    if natural is not None:
        check_schema(tool(f).parameters, {"value": natural})
    assert tool(f).bind({"value": sent}).values["value"] == got


def _without_number_text(sent):
    """Write numbers as numbers: that is a value's own form."""
    if isinstance(sent, list):
        return [_without_number_text(item) for item in sent] if len({str(item) for item in sent}) == len(sent) else None
    if isinstance(sent, dict):
        return {key: _without_number_text(item) for key, item in sent.items()} | ({"type": "Cat"} if sent == {"lives": 3} else {})
    return int(sent) if isinstance(sent, str) and sent.isdigit() and len(sent) == 1 else sent


BAD = {
    # a bool is never a number, nor a number or a word a bool
    "bool-number": [(int, True), (float, False), (bool, 1), (bool, "True"), (bool, "yes"), (t.Literal[1], True), (t.Literal[True], 1)],
    # text that is not exactly one number
    "number-text": [(int, "3.0"), (int, "3.5"), (int, " 3"), (int, ""), (float, "nan"), (float, "inf"), (float, "1e999"), (int, "1_000"), (int, "٣")],
    # numbers that would change
    "number-lossy": [(int, 3.5), (float, 10**400), (int, float("inf")), (float, float("nan"))],
    # nothing becomes text by itself, nor a date or a Path
    "text": [(str, 3), (str, None), (Path, 1), (dt.date, 1700000000), (dt.datetime, 1.5), (bytes, 3)],
    # text of the wrong form
    "text-form": [(dt.date, "2026-13-01"), (dt.datetime, "soon"), (bytes, "a"), (bytes, "é"), (Color, "RED"), (t.Literal["a"], "b")],
    # the wrong container, or length
    "container": [(list[int], "1"), (list, {"a": 1}), (dict, [1]), (tuple[int, str], [1]), (set[list[int]], [[1]]), (Point, [1])],
    # a flag without such a bit, a dict whose keys become one
    "odd": [(Bits, 64), (dict[int, int], {"1": 1, "01": 2})],
    # none of a union
    "union": [(int | None, "x"), (Point | Circle, {"z": 1}), (Cat | Dog, {"type": "Cow"})],
    # constraints
    "constraint": [
        (t.Annotated[int, msgspec.Meta(ge=1)], 0),
        (t.Annotated[int | None, annotated_types.Gt(1)], 1),
        (t.Annotated[float, msgspec.Meta(multiple_of=0.1)], 0.25),
        (t.Annotated[str, msgspec.Meta(pattern="^a")], "b"),
        (t.Annotated[list[int], annotated_types.MaxLen(1)], [1, 2]),
        (t.Annotated[str, annotated_types.Predicate(str.isupper)], "a"),
        (t.Annotated[dt.date, annotated_types.Ge(dt.date(2026, 1, 1))], "2025-01-01"),
        (t.Annotated[str, pydantic.StringConstraints(min_length=2)], "a"),
    ],
}


@pytest.mark.parametrize(
    ("annotation", "sent"), [pytest.param(*row, id=f"{name}-{number}") for name, rows in BAD.items() for number, row in enumerate(rows)]
)
def test_what_the_table_does_not_hold_is_refused(annotation, sent):
    def f(value): ...

    f.__annotations__["value"] = annotation
    with pytest.raises(InvalidArguments, match="value"):
        tool(f).bind({"value": sent})


class Lock:
    """A class with neither fields nor a JSON form."""


class Guarded(pydantic.BaseModel, arbitrary_types_allowed=True):
    lock: Lock


@dataclass
class Holder:
    lock: Lock


REFUSED = [
    complex, Lock, t.Callable[[], int], list[Lock], dict[str, complex], Holder, Holder | None, Guarded, t.Iterator[int], type[int], collections.OrderedDict, 5, [int],
    "Nowhere", "list[Nowhere]", "1 +", t.Literal[b"x"], t.Annotated[int, "described"] | Lock,
]  # fmt: skip


@pytest.mark.parametrize("annotation", REFUSED, ids=str)
def test_what_cannot_be_described_raises_at_decoration_and_names_the_parameter(annotation):
    def f(fine: int, odd): ...

    f.__annotations__["odd"] = annotation
    with pytest.raises(ToolError, match="'odd'"):
        tool(f)


def test_a_field_that_cannot_be_described_is_named_too():
    def f(holder: Holder): ...

    with pytest.raises(ToolError, match=r"'holder'.*'lock' of Holder"):
        tool(f)


def test_a_pattern_that_does_not_compile_raises_at_decoration():
    class Pattern:
        pattern = "("

    def f(odd): ...

    f.__annotations__["odd"] = t.Annotated[str, Pattern()]
    with pytest.raises(ToolError, match="'odd'"):
        tool(f)


def test_every_kind_of_parameter(check_schema):
    def f(a, b=2, /, c: int = 3, *args: int, d, e: str = "e", **kwargs: float):
        return a, b, c, args, d, e, kwargs

    made = tool(f)
    check_schema(made.parameters, {"a": 1, "d": 2, "args": [1], "other": 1.5})
    assert made.parameters["required"] == ["a", "d"]
    assert made.parameters["additionalProperties"] == {"type": "number"}
    assert made.bind({"a": 1, "d": 4}).run(None) == (1, 2, 3, (), 4, "e", {})
    assert made.bind({"a": 1, "d": 4, "args": ["7"], "other": 1, "b": 9}).run(None) == (1, 9, 3, (7,), 4, "e", {"other": 1.0})
    assert made.bind({"a": 1, "c": "5", "d": 4, "e": "x"}).run(None) == (1, 2, 5, (), 4, "x", {})


def test_positional_only_with_a_gap_takes_the_default():
    def f(a=1, b=2, /):
        return a, b

    assert tool(f).bind({"b": 5}).run(None) == (1, 5)


@pytest.mark.parametrize("name", ["self", "cls", "schema", "__x", "type", "json", "args", "kwargs", "größe"])
def test_any_parameter_name_is_allowed(name, check_schema):
    namespace = {}
    exec(f"def f({name}: int): return {name}", namespace)  # noqa: S102 - names that this file should not hold
    made = tool(namespace["f"])
    check_schema(made.parameters, {name: 1})
    assert made.bind({name: "1"}).run(None) == 1


def test_self_and_schema_as_field_names(check_schema):
    def f(options: t.TypedDict("Options", {"self": int, "a b": str, "$ref": int})): ...

    made = tool(f)
    check_schema(made.parameters, {"options": {"self": 1, "a b": "", "$ref": 1}})
    with pytest.raises(InvalidArguments, match=r'options\["a b"\]'):
        made.bind({"options": {"self": 1, "a b": 1, "$ref": 2}})


def test_a_nan_default_makes_no_invalid_json(check_schema):
    def f(a: float = float("nan"), b: dict | None = None, c: t.Any = object, d: str = "\ud800", e: list = [1, float("inf")]): ...  # noqa: B006 - a mutable default

    parameters = tool(f).parameters
    check_schema(json.loads(json.dumps(parameters, allow_nan=False).encode()), {})
    assert [name for name, spec in parameters["properties"].items() if "default" in spec] == ["b"]


def test_defaults_that_json_can_show_are_shown():
    def f(a=1, b: Color = Color.RED, c: Path = Path("x"), d: dt.date = dt.date(2026, 1, 1), e: tuple = (1, 2), g: Bits = Bits.A): ...

    shown = {name: spec["default"] for name, spec in tool(f).parameters["properties"].items()}
    assert shown == {"a": 1, "b": "red", "c": "x", "d": "2026-01-01", "e": [1, 2], "g": 1}


def test_a_default_of_none_makes_null_a_value():
    def f(a: int = None): ...  # noqa: RUF013 - people write it

    assert tool(f).bind({"a": None}).values == {"a": None}


def test_a_schema_does_not_follow_a_default_that_changes():
    rows = [1]

    def f(a: list = rows): ...

    made = tool(f)
    rows.append(2)
    assert made.parameters["properties"]["a"]["default"] == [1]


def test_recursive_schemas_refer_and_others_are_inline():
    def f(node: Node, point: Point, again: Point): ...

    schema = tool(f).parameters
    assert list(schema["$defs"]) == ["Node"]
    assert schema["properties"]["point"] == schema["properties"]["again"]
    assert schema["properties"]["point"]["additionalProperties"] is False


def test_two_classes_of_one_name_stay_apart(check_schema):
    def make():
        @dataclass
        class Node:
            other: Node | None = None
            more: int = 0

        return Node

    second = make()

    def f(a: Node, b): ...

    f.__annotations__["b"] = second
    schema = tool(f).parameters
    check_schema(schema, {"a": {"name": "x"}, "b": {"more": 1, "other": {"more": 2}}})
    assert sorted(schema["$defs"]) == ["Node", "Node2"]


def test_constraints_show_in_the_schema():
    def f(
        n: t.Annotated[int, msgspec.Meta(ge=1, lt=9, multiple_of=2, title="N", examples=[2])],
        s: t.Annotated[str, annotated_types.Len(1, 3), msgspec.Meta(pattern="^a")],
        l: t.Annotated[list[int] | None, annotated_types.MinLen(2)] = None,  # noqa: E741 - a name like any other
    ): ...

    shown = tool(f).parameters["properties"]
    assert shown["n"] == {"type": "integer", "minimum": 1, "exclusiveMaximum": 9, "multipleOf": 2, "title": "N", "examples": [2]}
    assert shown["s"] == {"type": "string", "minLength": 1, "maxLength": 3, "pattern": "^a"}
    assert shown["l"]["minItems"] == 2


def test_descriptions_come_from_annotations_first_then_docstrings():
    def f(a: t.Annotated[int, "from the annotation"], b: t.Annotated[int, pydantic.Field(description="from Field")], c: int, d: Point):
        """Do it.

        Args:
            a: from the docstring
            b: from the docstring
            c: from the docstring
            d: the centre
        """

    made = tool(f)
    shown = {name: spec["description"] for name, spec in made.parameters["properties"].items()}
    assert shown == {"a": "from the annotation", "b": "from Field", "c": "from the docstring", "d": "the centre"}
    assert made.description == "Do it."


@pytest.mark.parametrize("annotation", [ToolContext, "ToolContext", ToolContext | None, t.Annotated[ToolContext, "x"]], ids=str)
def test_a_context_is_injected_and_not_in_the_schema(annotation, make_context):
    def first(ctx, a: int, *rest: int):
        return ctx, a, rest

    def last(a: int, *, ctx=None):
        return ctx, a

    context, _ = make_context()
    for f in (first, last):
        f.__annotations__["ctx"] = annotation
        assert "ctx" not in tool(f).parameters["properties"]
    assert tool(first).bind({"a": 1, "rest": [2]}).run(context) == (context, 1, (2,))
    assert tool(last).bind({"a": 1}).run(context) == (context, 1)
    with pytest.raises(InvalidArguments, match="ctx: unknown"):
        tool(last).bind({"a": 1, "ctx": 1})


CELLS = """
{future}
from dataclasses import dataclass
from typing import TypedDict
import enum, msgspec, pydantic

class Size(enum.Enum):
    S = "s"

@dataclass
class Part:
    size: {q}Size{q}
    parts: {q}list[Part]{q}

class Row(TypedDict):
    part: {q}Part | None{q}

class Filter(msgspec.Struct):
    row: {q}Row{q}

def f(filter: {q}Filter{q}, sizes: {q}list[Size]{q}):
    '''Look.'''
    return filter, sizes
"""


@pytest.mark.parametrize(("future", "q"), [("", ""), ("", "'"), ("from __future__ import annotations", "")], ids=["plain", "text", "future"])
def test_functions_and_classes_of_a_notebook_cell(cell, future, q, check_schema):
    source = CELLS.format(future=future, q=q)
    if not future and not q:
        source = source.replace("list[Part]", "list")
    names = cell(source)
    made = tool(names["f"])
    part = {"size": "s", "parts": [{"size": "s", "parts": []}] if future or q else []}
    check_schema(made.parameters, {"filter": {"row": {"part": part}}, "sizes": ["s"]})
    found, sizes = made.bind({"filter": {"row": {"part": part}}, "sizes": ["s"]}).run(None)
    assert isinstance(found, names["Filter"])
    assert isinstance(found.row["part"], names["Part"])
    assert sizes == [names["Size"].S]


def test_local_classes_under_future_annotations():
    @dataclass
    class Local:
        other: Other

    @dataclass
    class Other:
        n: int

    @tool
    def f(local: Local):
        return local

    assert f.bind({"local": {"other": {"n": "1"}}}).run(None) == Local(Other(1))


def test_a_name_that_is_defined_nowhere_is_named(cell):
    names = cell("def f(a: 'Later'): ...")
    with pytest.raises(ToolError, match=r"'a'.*Later"):
        tool(names["f"])
    cell("from dataclasses import dataclass\n@dataclass\nclass Later:\n    n: int")
    assert tool(names["f"]).parameters["properties"]["a"]["required"] == ["n"]


def test_what_a_partial_bound_is_not_the_models_business():
    def f(query: str, key: str, limit: int = 3):
        return query, key, limit

    made = tool(functools.partial(f, key="secret"))
    assert made.name == "f"
    assert list(made.parameters["properties"]) == ["query", "limit"]
    assert "secret" not in json.dumps(made.parameters)
    assert made.bind({"query": "q", "limit": "4"}).run(None) == ("q", "secret", 4)
    assert tool(functools.partial(f, "q")).bind({"key": "k"}).run(None) == ("q", "k", 3)


def test_builtins_without_a_signature_say_what_to_do():
    with pytest.raises(ToolError, match="parameters="):
        tool(max)
    assert Tool(call=max, name="largest", parameters={"properties": {}}).name == "largest"
