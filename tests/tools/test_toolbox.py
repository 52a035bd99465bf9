"""Sets of tools: adding, finding, and refusing two of one name."""

from __future__ import annotations

import pytest

from agent_kernel.errors import ToolError, UnknownTool
from agent_kernel.tools.tool import Tool, tool
from agent_kernel.tools.toolbox import Toolbox


def revenue(region: str): ...


def costs(region: str): ...


@tool
def read_file(path: str): ...


def other_revenue():
    def revenue(year: int): ...

    return revenue


class Desk:
    @tool
    def look(self): ...


def test_functions_tools_and_toolboxes_in_order():
    box = Toolbox([revenue, read_file]).add(costs)
    outer = Toolbox([box, Tool(name="x", call=revenue)])
    assert outer.names == ("revenue", "read_file", "costs", "x")
    assert [spec.name for spec in outer.specs()] == list(outer.names)
    assert len(outer) == 4
    assert "costs" in outer
    assert read_file in outer
    assert "nothing" not in outer
    assert all(isinstance(each, Tool) for each in outer)
    assert outer.get("read_file") is read_file


def test_the_same_tool_twice_is_one():
    desk = Desk()
    box = Toolbox([revenue, revenue, read_file, read_file, desk.look, desk.look]).add(tool(revenue)).add(Toolbox([revenue]))
    assert box.names == ("revenue", "read_file", "look")


@pytest.mark.parametrize(
    "second", [other_revenue(), tool(timeout=5)(revenue), Tool(name="revenue", call=costs)], ids=["function", "options", "named"]
)
def test_two_different_tools_of_one_name_raise_unless_replaced(second):
    box = Toolbox([revenue])
    with pytest.raises(ToolError, match="revenue"):
        box.add(second)
    with pytest.raises(ToolError, match="revenue"):
        Toolbox([revenue, second])
    assert box.get("revenue").call is revenue
    replaced = box.add(second, replace=True)
    assert replaced is box
    assert box.get("revenue").same_as(second if isinstance(second, Tool) else tool(second))
    assert len(box) == 1


def test_methods_of_two_objects_are_two_tools():
    with pytest.raises(ToolError, match="look"):
        Toolbox([Desk().look, Desk().look])


def test_a_toolbox_that_clashes_adds_nothing():
    box = Toolbox([revenue])
    with pytest.raises(ToolError):
        box.add(Toolbox([costs, other_revenue()]))
    assert box.names == ("revenue",)


@pytest.mark.parametrize(("asked", "close"), [("revenu", "revenue"), ("Read_File", "read_file"), ("readfile", "read_file")])
def test_an_unknown_name_answers_with_close_ones(asked, close):
    with pytest.raises(UnknownTool, match=f"{asked}.*Did you mean {close}"):
        Toolbox([revenue, read_file]).get(asked)


def test_an_unknown_name_without_a_close_one_lists_what_there_is():
    with pytest.raises(UnknownTool, match="revenue"):
        Toolbox([revenue]).get("zzz")
    with pytest.raises(UnknownTool, match="No tools"):
        Toolbox().get("zzz")


@pytest.mark.parametrize("thing", [3, "revenue", None, [revenue]], ids=str)
def test_what_is_no_tool_raises(thing):
    with pytest.raises(ToolError):
        Toolbox([thing])


def test_a_tool_alone_is_no_list_of_tools():
    def revenue(region: str) -> int:
        """Look up."""
        return 1

    with pytest.raises(ToolError, match=r"takes a list: \[revenue\]"):
        Toolbox(revenue)
