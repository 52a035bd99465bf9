"""The table of return values: two members a class, each in words, none of them fatal."""

from __future__ import annotations

import array
import base64
import collections
import csv
import datetime as dt
import decimal
import enum
import fractions
import io
import json
import subprocess
import sys
import types
import uuid
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, NamedTuple

import duckdb
import matplotlib.figure
import msgspec
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_kernel.tools.jsontext import plain
from agent_kernel.tools.serialise import serialise

PNG = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")


class Color(enum.Enum):
    RED = "red"
    TWO = 2


@dataclass
class Point:
    x: int
    secret: str = field(default="hidden", repr=False)


class Row(msgspec.Struct, tag="row"):
    a: int = msgspec.field(name="A")
    unset: int | msgspec.UnsetType = msgspec.UNSET


class User(pydantic.BaseModel):
    name: str
    born: dt.date
    key: pydantic.SecretStr = pydantic.SecretStr("k")


class Pair(NamedTuple):
    a: int
    b: object


class ReprRaises:
    def __repr__(self):
        raise ValueError("no")


class ReprExits:
    def __repr__(self):
        raise SystemExit(3)


class ReprIsNoText:
    def __repr__(self):
        return 3


class LyingClass:
    @property
    def __class__(self):
        raise RuntimeError("no")


class AnswersToAll:
    def __getattr__(self, name):
        return lambda *args: 1

    def __repr__(self):
        return "<answers to all>"


class StrOnly:
    def __str__(self):
        return "in words"


class Ansi:
    def __repr__(self):
        return "\x1b[1mbold\x1b[0m \ud800"


class Drawn:
    def _repr_png_(self):
        return PNG


class DrawnTwice:
    def _repr_jpeg_(self):
        return b"\xff\xd8\xff", {"width": 1}

    def _repr_svg_(self):
        raise AssertionError("the first that answers is enough")


class CannotDraw:
    def _repr_png_(self):
        raise RuntimeError("no display")

    def __repr__(self):
        return "<cannot draw>"


class ModelDumpsItself:
    """Each step towards something plainer gives the same again."""

    __attrs_attrs__ = (types.SimpleNamespace(name="me", repr=True),)

    @property
    def me(self):
        return ModelDumpsItself()


def numbers():
    yield 1
    yield 2


def failing():
    yield 1
    raise ValueError("in the middle")


CYCLE_LIST: list[Any] = [1]
CYCLE_LIST.append(CYCLE_LIST)
CYCLE_DICT: dict[str, Any] = {}
CYCLE_DICT["me"] = {"again": CYCLE_DICT}

# Each class with why it is one; each row: value, its text (a function is asked).
ROWS = {
    # text is passed as it is
    "text": [("as it is\n", "as it is\n"), ("", "")],
    # text that would break a database, a request or a browser
    "text-dirty": [("\x1b[31mred\x1b[0m\x00", "red\x00"), ("lone \ud800", "lone �")],
    # JSON's own scalars
    "scalar": [(3, "3"), (None, "null"), (True, "true"), (1.5, "1.5")],
    # floats that JSON does not have keep their name
    "not-finite": [(float("nan"), '"NaN"'), ([float("-inf"), 1.0], '["-Infinity", 1.0]')],
    # ints longer than Python prints
    "long-int": [(2**20000, lambda text: int(json.loads(text), 16) == 2**20000), ([16**5000], lambda text: "0x1000" in text)],
    # containers are JSON, in Python's spacing, without ASCII escapes
    "container": [({"ä": [1, (2, 3)]}, '{"ä": [1, [2, 3]]}'), ([], "[]"), (collections.deque([1]), "[1]"), (array.array("i", [1]), "[1]")],
    # sets have an order only if we give them one
    "set": [({3, 1, 2}, "[1, 2, 3]"), (frozenset([1, "a"]), '[1, "a"]'), ({"b": 1}.keys(), '["b"]')],
    # keys that are no text
    "keys": [({None: 2, 5: 1}, '{"null": 2, "5": 1}'), ({(1, 2): 1, Color.RED: 2}, '{"(1, 2)": 1, "red": 2}')],
    # keys that become one
    "keys-twice": [({1: "a", "1": "b"}, '{"1": "a", "1 (str)": "b"}'), ({"true": 1, True: 2}, '{"true": 1, "true (bool)": 2}')],
    # dicts under other names
    "mapping": [(collections.ChainMap({"a": 1}), '{"a": 1}'), (collections.Counter("aab"), '{"a": 2, "b": 1}'), (types.SimpleNamespace(a=1), '{"a": 1}')],
    # objects that declare their fields
    "dataclass": [(Point(1), '{"x": 1}'), ([Point(2)], '[{"x": 2}]')],
    "struct": [(Row(a=1), '{"type": "row", "A": 1}'), ({"r": Row(a=2)}, '{"r": {"type": "row", "A": 2}}')],
    "pydantic": [(User(name="a", born=dt.date(2020, 1, 2)), '{"name": "a", "born": "2020-01-02", "key": "SecretStr(\'**********\')"}'),
                 (pydantic.RootModel[list[int]]([1]), "[1]")],
    "namedtuple": [(Pair(1, {2}), '{"a": 1, "b": [2]}'), ([Pair(1, None)], '[{"a": 1, "b": null}]')],
    # a constant stands for its value
    "enum": [(Color.RED, "red"), (Color.TWO, "2"), ([Color.RED], '["red"]')],
    # values with one usual text
    "dates": [(dt.datetime(2026, 1, 2, 3), "2026-01-02T03:00:00"), (dt.date(2026, 1, 2), "2026-01-02"), ([dt.timedelta(1)], '["1 day, 0:00:00"]')],  # noqa: DTZ001
    "numbers-as-text": [(decimal.Decimal("1.10"), "1.10"), ([fractions.Fraction(1, 3), 1j], '["1/3", "1j"]')],
    "names": [(uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"), (PurePosixPath("a/b"), "a/b")],
    # bytes show whole while they are few
    "bytes-few": [(b"abc", "b'abc'"), (bytearray(2), r"b'\x00\x00'"), (memoryview(b"x"), "b'x'")],
    "bytes-many": [(b"a" * 1000, lambda text: text.startswith("1,000 bytes, beginning with b'aaa")), (PNG, lambda text: "PNG" in text)],
    # what can be read once
    "iterator": [(numbers(), "[1, 2]"), (map(str, [1]), '["1"]'), (range(3), "[0, 1, 2]")],
    "iterator-endless": [(iter(int, 1), lambda text: text.endswith('0, "[stopped after 10,000 items; there are more]"]')), (range(10**12), lambda text: len(text) < 10**6)],
    "iterator-raising": [(failing(), '[1, "[stopped by ValueError: in the middle]"]'), ([failing()], '[[1, "[stopped by ValueError: in the middle]"]]')],
    # an exception that is returned, not raised
    "exception": [(ValueError("boom"), "ValueError: boom"), ([KeyError("k")], '["KeyError: \'k\'"]')],
    # no end by itself
    "cycle": [(CYCLE_LIST, '[1, "<cycle: the list that this is part of>"]'), (CYCLE_DICT, '{"me": {"again": "<cycle: the dict that this is part of>"}}')],
    "endless-object": [(ModelDumpsItself(), lambda text: "too deep" in text), ([ModelDumpsItself()], lambda text: "too deep" in text)],
    # code that fails where it should describe itself
    "repr-raises": [(ReprRaises(), "<ReprRaises object, whose repr raised ValueError>"), ([ReprIsNoText()], '["<ReprIsNoText object, whose repr raised TypeError>"]')],
    "repr-exits": [(ReprExits(), "<ReprExits object, whose repr raised SystemExit>"), ({"a": ReprExits()}, '{"a": "<ReprExits object, whose repr raised SystemExit>"}')],
    "lies": [(LyingClass(), lambda text: "LyingClass" in text), ([1, LyingClass()], lambda text: text.startswith('[1, "<LyingClass'))],
    # objects that have nothing but a repr
    "repr": [(AnswersToAll(), "<answers to all>"), (StrOnly(), "in words"), (Ansi(), "bold �"), (int, "<class 'int'>")],
    # numpy
    "numpy-scalar": [(np.float32(1.5), "1.5"), (np.float64("nan"), '"NaN"'), (np.datetime64("2026-01-02"), "2026-01-02"), ([np.int8(3), np.bool_(1)], "[3, true]")],
    "numpy-array": [(np.arange(3), "[0, 1, 2]"), (np.array([1, "a", None], dtype=object), '[1, "a", null]'), (np.array(5), "5")],
    "numpy-large": [(np.arange(2000), lambda text: "2,000 values of int64, from 0 to 1999" in text), ([np.zeros((50, 50))], lambda text: "(50, 50)" in text)],
    # frames
    "pandas": [(pd.DataFrame({"a": [1]}), lambda text: text.startswith("pandas DataFrame, 1 rows x 1 columns")), (pd.Series([1], name="s"), lambda text: "s       int64" in text)],
    "polars": [(pl.DataFrame({"a": [None, 1]}), lambda text: "a       Int64  1" in text), (pl.Series("s", [1]), lambda text: "polars Series" in text)],
    "arrow": [(pa.table({"a": [1]}), lambda text: "Arrow Table, 1 rows" in text), (pa.array([1, None]), lambda text: "value   int64  1" in text), (pa.scalar(3), "3")],
    "empty-frame": [(pd.DataFrame(), lambda text: "0 rows x 0 columns" in text), (pl.DataFrame({"a": []}), lambda text: "0 rows x 1" in text), (pa.table({}), lambda text: "0 rows" in text)],
    # frames that are still to be computed
    "lazy": [(pl.LazyFrame({"a": [1]}), lambda text: "not collected" in text), (duckdb.sql("select 1 as a"), lambda text: "all rows shown" in text)],
    # images
    "picture": [(Drawn(), f"Drawn (image/png, {len(PNG)} bytes)"), (DrawnTwice(), "DrawnTwice (image/jpeg, 3 bytes)"), (CannotDraw(), "<cannot draw>")],
}  # fmt: skip
CASES = [pytest.param(value, text, id=f"{name}-{number}") for name, rows in ROWS.items() for number, (value, text) in enumerate(rows)]


def test_each_class_of_the_table_has_two_members():
    assert all(len(rows) >= 2 for rows in ROWS.values())


@pytest.mark.parametrize(("value", "text"), CASES)
def test_a_return_value_in_words(value, text):
    made = serialise(value)
    assert text(made.text) if callable(text) else made.text == text
    made.text.encode()
    if made.media_type == "application/json" and made.whole is None:
        json.loads(made.text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


def test_a_coroutine_is_closed_and_named():
    async def never():
        raise AssertionError("it is not run")

    assert "never" in serialise(never()).text  # and no warning that nobody awaited it


def test_keyboard_interrupt_is_the_users():
    class Interrupted:
        def __repr__(self):
            raise KeyboardInterrupt

    for value in (Interrupted(), [Interrupted()]):
        with pytest.raises(KeyboardInterrupt):
            serialise(value)


def test_depth_is_bounded():
    value: list[Any] = []
    for _ in range(10_000):
        value = [value]
    text = serialise(value).text
    assert "too deep to be shown" in text
    json.loads(text)


def test_the_bound_of_iterators_can_be_set_and_is_said():
    assert serialise(iter([1, 2, 3]), max_items=2).text == '[1, 2, "[stopped after 2 items; there are more]"]'
    assert serialise(iter([1, 2]), max_items=2).text == "[1, 2]"


def test_lists_are_never_cut():
    value = [{"n": number, "t": [str(number)]} for number in range(30_000)]
    assert json.loads(serialise(value).text) == value


def test_one_odd_row_among_many_is_cleaned_like_the_others():
    rows: list[Any] = [{"a": "x"} for _ in range(2_000)]
    rows[700] = {"a": "\x1b[1mx", "b": float("nan"), "c": "\ud800"}
    rows[1400] = {1: {2}}
    found = json.loads(serialise(rows).text)
    assert found[700] == {"a": "x", "b": "NaN", "c": "�"}
    assert found[1400] == {"1": [2]}
    assert found[0] == found[1999] == {"a": "x"}


def test_long_text_in_a_container_is_whole():
    text = 'é"\n' * 400_000
    assert json.loads(serialise({"t": text}).text) == {"t": text}


def test_bytes_come_along_whole():
    made = serialise(PNG)
    assert (made.whole, made.media_type) == (PNG, "image/png")
    assert serialise(b"\x00" * 100).media_type == "application/octet-stream"
    assert serialise(b"abc").whole is None


def test_arrays_come_along_whole():
    value = np.random.default_rng(1).random((40, 50))
    made = serialise(value)
    assert made.media_type == "application/x-npy"
    assert np.array_equal(np.load(io.BytesIO(made.whole)), value)
    objects = serialise(np.array([1, "a"] * 1000, dtype=object))
    assert json.loads(objects.whole) == [1, "a"] * 1000


def frames():
    values = {"n": list(range(30_000)), "t": ['x, "y"\nz'] * 29_999 + [None], "\x1b[1mü": [0.1] * 30_000}
    frame = pd.DataFrame(values)
    return {"pandas": frame, "polars": pl.DataFrame(values), "arrow": pa.table(values), "batch": pa.RecordBatch.from_pydict(values)}


@pytest.mark.parametrize("name", frames())
def test_a_frame_shows_schema_shape_head_and_tail_and_comes_along_whole(name):
    made = serialise(frames()[name])
    assert "30,000 rows x 3 columns" in made.text
    assert "first 5 rows:" in made.text
    assert "29999" in made.text
    assert "ü" in made.text
    assert "\x1b" not in made.text
    assert r"\nz" in made.text
    assert len(made.text) < 2_000
    assert made.media_type == "text/csv"
    rows = list(csv.reader(io.StringIO(made.whole)))
    index = name == "pandas"
    assert rows[0] == ["", "n", "t", "ü"][not index :]
    assert len(rows) == 30_001
    assert rows[1][index:] == ["0", 'x, "y"\nz', "0.1"]
    assert rows[-1][index:] == ["29999", "", "0.1"]


def test_a_small_frame_shows_whole_unless_a_cell_is_long():
    assert serialise(pd.DataFrame({"a": ["x" * 100] * 20})).whole is None
    assert serialise(pd.DataFrame({"a": ["x" * 101]})).whole is not None
    assert serialise(pd.DataFrame({"a": range(21)})).whole is not None
    assert serialise(pd.DataFrame([range(51)])).whole is not None


def test_frames_with_odd_columns_and_indexes():
    index = pd.MultiIndex.from_tuples([("a", 1), ("b", 2)], names=["k", None])
    made = serialise(pd.DataFrame([[1, 2], [3, 4]], columns=["x", "x"], index=index))
    assert made.text.splitlines()[-3:] == ["k     x  x", "a  1  1  2", "b  2  3  4"]
    nested = serialise(pl.DataFrame({"l": [[1, 2]] * 30, "s": [{"a": 1}] * 30}))
    assert list(csv.reader(io.StringIO(nested.whole)))[1] == ["[1, 2]", "{'a': 1}"]


def test_a_cell_that_cannot_be_shown_does_not_lose_the_frame():
    made = serialise(pd.DataFrame({"a": [1, 2], "odd": [ReprExits(), ReprRaises()]}))
    assert "repr raised SystemExit" in made.text


def test_a_large_frame_with_such_a_cell_comes_along_whole():
    made = serialise(pd.DataFrame({"a": range(1000), "odd": [ReprExits(), *range(999)]}))
    rows = list(csv.reader(io.StringIO(made.whole)))
    assert len(rows) == 1001
    assert rows[1] == ["0", "0", "<ReprExits object, whose repr raised SystemExit>"]


def test_a_summary_inside_a_container_says_how_to_get_the_whole():
    made = serialise({"frame": pd.DataFrame({"a": range(100)}), "data": b"x" * 100, "small": pd.DataFrame({"a": [1]})})
    found = json.loads(made.text)
    assert "kept whole if it is returned by itself" in found["frame"]
    assert "kept whole if it is returned by itself" in found["data"]
    assert "by itself" not in found["small"]


def test_a_duckdb_relation_leaves_its_connection_usable():
    with duckdb.connect() as connection:
        made = serialise(connection.sql("select * from range(1000) t(n)"))
        assert "the first 20 rows" in made.text
        assert connection.sql("select 1").fetchall() == [(1,)]


def test_figures_become_attachments():
    figure = matplotlib.figure.Figure()
    axes = figure.add_subplot()
    axes.set_title("Sales")
    axes.plot([1, 2])
    for value in (figure, axes, [figure], {"a": axes}):
        made = serialise(value)
        assert "Figure with 1 axes: Sales" in made.text
        (attachment,) = made.attachments
        assert attachment.media_type == "image/png"
        assert attachment.data.startswith(b"\x89PNG")
    assert len(serialise([Drawn(), figure]).attachments) == 2


def test_plain_is_what_json_holds():
    assert plain({"a": {1}, "b": float("nan")}) == {"a": [1], "b": "NaN"}


@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(st.characters(exclude_characters="\x1b", exclude_categories=["Cs"])),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_characters="\x1b", exclude_categories=["Cs"])), inner),
    )
)
def test_json_survives(value):
    made = serialise(value)
    if isinstance(value, str):
        assert made.text == value
    else:
        assert json.loads(made.text) == value


def test_no_library_is_imported_to_recognise_its_values():
    code = """
import sys
from agent_kernel.tools.serialise import serialise
from agent_kernel.tools.toolbox import Toolbox
def f(a: int, b: list[str] | None = None): ...
Toolbox([f]).get("f").bind({"a": 1})
serialise({"a": [object(), b"x" * 100]})
loaded = {"numpy", "pandas", "polars", "pyarrow", "duckdb", "pydantic", "openai", "matplotlib", "IPython"} & set(sys.modules)
assert not loaded, loaded
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
