"""Interrupts in both entries: the cell ends at once, Run All stops, the next cell works and the next request is valid."""

from __future__ import annotations

import pytest

TOOLS = """
started = threading.Event()
@tool
def blocking() -> str:
    print("started", flush=True)
    time.sleep(30)
    return "never"
@tool(runs_on="main")
def main_blocking() -> str:
    print("started", flush=True)
    time.sleep(30)
    return "never"
@tool
async def waiting() -> str:
    print("started", flush=True)
    await asyncio.sleep(30)
@tool(runs_on="kernel_loop")
async def loop_waiting() -> str:
    print("started", flush=True)
    await asyncio.sleep(30)
"""

ENTRIES = {
    "await": "%agent go",
    "cell": "%%agent\ngo",
    "time": "%%time\n%agent go",
    "def": "def f():\n    %agent go\nf()",
}


@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize("name", ["blocking", "main_blocking", "waiting", "loop_waiting"])
def test_an_interrupt_ends_the_cell_and_leaves_the_kernel_usable(kernel, entry, name):
    kernel.ok(TOOLS + f"agent.session.model = m = ScriptedModel([['some text', call({name!r}, '1')], 'after'])")
    cell, queued = kernel.send(ENTRIES[entry]), kernel.send("print('queued')")
    cell.wait_for("started")
    if name == "main_blocking":
        kernel.wait_asleep()
    sent = kernel.interrupt()
    kernel.wait(cell, 10)
    latency = cell.replied - sent
    print(f"{entry}, {name}: the cell ended {latency * 1000:.0f} ms after the interrupt")
    assert latency < 1
    assert cell.error[0] == "TurnInterrupted"
    assert len(cell.error[1]) == 1
    assert "%agent retry" in cell.error[1][0]
    assert "some text" in cell.text
    assert kernel.wait(queued).status == "aborted"
    assert kernel.ok("print('next', agent.session.state.status)") == "next cancelled\n"
    assert "after" in kernel.ok("%agent and now?")
    roles = kernel.ok("print([(m.role, getattr(m, 'status', '')) for m in m.requests[-1].messages[1:]])")
    assert roles == "[('user', ''), ('assistant', ''), ('tool', 'cancelled'), ('user', '')]\n"


def test_a_second_interrupt_is_harmless(kernel):
    kernel.ok(TOOLS + "agent.session.model = ScriptedModel([[call('main_blocking', '1')], 'after'])")
    cell = kernel.send("%agent go")
    cell.wait_for("started")
    kernel.wait_asleep()
    for _ in range(3):
        kernel.interrupt()
    kernel.wait(cell, 10)
    assert cell.error[0] == "TurnInterrupted"
    assert kernel.ok("print('next')") == "next\n"


def test_an_interrupt_while_the_model_streams(kernel):
    kernel.ok("agent.session.model = ScriptedModel([['partial', 30], 'retried'])")
    for entry in ("%agent go", "def f():\n    %agent go\nf()"):
        kernel.ok("agent.session.model = ScriptedModel([['partial', 30], 'retried'])")
        cell = kernel.send(entry)
        cell.wait_for("partial")
        sent = kernel.interrupt()
        kernel.wait(cell, 10)
        print(f"the cell ended {(cell.replied - sent) * 1000:.0f} ms after the interrupt")
        assert cell.replied - sent < 1
        assert "retried" in kernel.ok("%agent retry")


def test_a_tool_that_swallows_the_interrupt_ends_the_turn_too(kernel):
    kernel.ok("""
@tool(runs_on="main")
def stubborn() -> str:
    try:
        print("started", flush=True)
        time.sleep(30)
    except KeyboardInterrupt:
        return "swallowed"
agent.session.model = ScriptedModel([[call("stubborn", "1")], "after"])
""")
    for entry in ("%agent go", "def f():\n    %agent go\nf()"):
        kernel.ok("agent.session.model = ScriptedModel([[call('stubborn', '1')], 'after'])")
        cell = kernel.send(entry)
        cell.wait_for("started")
        kernel.wait_asleep()
        kernel.interrupt()
        kernel.wait(cell, 10)
        assert cell.error[0] == "TurnInterrupted"


def test_cancel_from_elsewhere_breaks_a_main_thread_tool(kernel):
    kernel.ok(TOOLS + "agent.session.model = ScriptedModel([[call('main_blocking', '1')], 'after'])")
    for entry in ("%agent go", "def f():\n    %agent go\nf()"):
        kernel.ok("agent.session.model = ScriptedModel([[call('main_blocking', '1')], 'after'])\nthreading.Timer(1, agent.session.cancel).start()")
        cell = kernel.run(entry, timeout=10)
        assert cell.error[0] == "TurnInterrupted"
        assert "stopped" in cell.error[1][0]
        assert kernel.ok("print('next')") == "next\n"


def test_a_timeout_of_a_main_thread_tool_ends_the_call_not_the_turn(kernel):
    kernel.ok("""
@tool(runs_on="main", timeout=0.5)
def main_blocking() -> str:
    time.sleep(30)
agent.session.model = m = ScriptedModel([[call("main_blocking", "1")], "after the timeout"])
""")
    cell = kernel.run("%agent go", timeout=10)
    assert cell.status == "ok"
    assert "after the timeout" in cell.text
    assert kernel.ok("print(agent.session.state.tool_calls[0].result.status)") == "timeout\n"
