"""Loading and leaving, name clashes, other packages' patches, nested use, approval, and the terminal."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def test_load_unload_and_reload_are_silent_and_complete(start_kernel):
    kernel = start_kernel(extension=False)
    kernel.ok("""
import sys, threading
def shape():
    ip = get_ipython()
    manager = ip.input_transformer_manager
    return (
        {kind: sorted(table) for kind, table in ip.magics_manager.magics.items()},
        [list(map(str, places)) for places in (manager.cleanup_transforms, manager.token_transformers, manager.line_transforms, ip.input_transformers_post)],
        {event: len(callbacks) for event, callbacks in ip.events.callbacks.items()},
        sorted(name for name in ip.magics_manager.registry if name != 'ExtensionMagics'),  # IPython's own, made at the first %load_ext
        sorted(thread.name for thread in threading.enumerate()),
        "agent" in ip.user_ns,
    )
before = shape()
""")
    for _ in range(3):
        cell = kernel.run("%load_ext agent_kernel")
        assert (cell.status, cell.outputs) == ("ok", [])
        assert "session" in kernel.ok("%agent status")
        cell = kernel.run("%reload_ext agent_kernel")
        assert (cell.status, cell.outputs) == ("ok", [])
        cell = kernel.run("%unload_ext agent_kernel")
        assert (cell.status, cell.outputs) == ("ok", [])
        assert kernel.ok("print([pair for pair in zip(shape(), before) if pair[0] != pair[1]])") == "[]\n"
    assert kernel.run("%agent hello").status == "error" or "not found" in kernel.run("%agent hello").text


LOAD = """
import sys, threading
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
class Watch:
    seen = []
    def find_spec(self, name, *_):
        self.seen.append((name, threading.current_thread() is threading.main_thread()))
sys.meta_path.insert(0, Watch())
shell.extension_manager.load_extension("agent_kernel")
print([name for name, main in Watch.seen if main and name in ("openai", "duckdb", "ipywidgets", "anywidget", "nest_asyncio2", "jupyter_client")])
"""


def test_load_imports_nothing_heavy_and_a_fast_exit_is_silent(tmp_path):
    environ = {**os.environ, "IPYTHONDIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
    for _ in range(3):  # the exit meets the warm-up at different places
        done = subprocess.run([sys.executable, "-c", LOAD], capture_output=True, text=True, timeout=60, check=True, env=environ)
        assert (done.stdout, done.stderr) == ("[]\n", "")


def test_importing_the_package_imports_next_to_nothing():
    code = "import sys\nimport agent_kernel\nassert 'Session' in dir(agent_kernel)\nprint([name for name in ('openai', 'duckdb', 'ipywidgets', 'anywidget', 'IPython', 'msgspec') if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True).stdout == "[]\n"


def test_the_public_face_is_whole():
    import agent_kernel

    assert {name for name in dir(agent_kernel) if not name.startswith("_")} == set(agent_kernel.__all__)
    for name in agent_kernel.__all__:
        assert getattr(agent_kernel, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'Sesion'"):
        agent_kernel.Sesion  # noqa: B018


def test_the_engine_warms_up_after_load(kernel):
    assert (
        kernel.ok(
            "import sys\nfor _ in range(100):\n    if all(n in sys.modules for n in ('openai', 'anywidget', 'duckdb')):\n        break\n    time.sleep(0.1)\nprint(_ < 99)"
        )
        == "True\n"
    )


def test_a_taken_name_is_shared_under_a_second_one_and_given_back(start_kernel):
    kernel = start_kernel(extension=False)
    kernel.ok("from IPython.core.magic import register_cell_magic\n@register_cell_magic\ndef agent(line, cell):\n    print('the other', cell)")
    kernel.ok("del agent")
    cell = kernel.run("%load_ext agent_kernel")
    assert cell.text.count("%%ak") == 1
    kernel.ok("from agent_kernel import ScriptedModel\nagent.session.model = ScriptedModel(['one', 'two'])")
    assert "one" in kernel.ok("%%agent\nhi")
    assert "two" in kernel.ok("%%ak\nhi")
    kernel.ok("%unload_ext agent_kernel")
    assert "the other" in kernel.ok("%%agent\nhi")
    assert kernel.run("%%ak\nhi").status == "error"


@pytest.mark.parametrize("module", ["nest_asyncio", "nest_asyncio2"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_the_users_own_patch_of_asyncio_changes_nothing(start_kernel, module, when):
    kernel = start_kernel(extension=False)
    patch = f"import {module}; {module}.apply()"
    kernel.ok("\n".join([patch, "%load_ext agent_kernel"] if when == "before" else ["%load_ext agent_kernel", patch]))
    kernel.ok("""
import time, asyncio
from agent_kernel import ScriptedModel, tool
from agent_kernel.protocol.messages import ToolCall
@tool
def fast() -> str:
    time.sleep(0.1)
    return "fast result"
@tool(runs_on="main")
def on_main() -> str:
    return "main result"
@tool(runs_on="kernel_loop")
async def on_loop() -> str:
    await asyncio.sleep(0.05)
    return "loop result"
@tool
def block() -> str:
    print("started", flush=True)
    time.sleep(30)
def script():
    calls = [ToolCall(id=str(i), name=name) for i, name in enumerate(("fast", "on_main", "on_loop"))]
    agent.session.model = ScriptedModel([calls, "done", [ToolCall(id="9", name="block")], "after"])
""")
    for entry in ("%agent go", "def f():\n    %agent go\nf()"):
        kernel.ok("script()")
        text = kernel.ok(entry)
        for word in ("fast result", "main result", "loop result", "done"):
            assert word in text
        cell, queued = kernel.send(entry), kernel.send("print('queued')")
        cell.wait_for("started")
        sent = kernel.interrupt()
        kernel.wait(cell, 10)
        assert cell.replied - sent < 1
        assert cell.error[0] == "TurnInterrupted"
        kernel.wait(queued, 10)
        assert "after" in kernel.ok("%agent and now?")


@pytest.mark.parametrize("entry", ["%agent go", "%%time\n%agent go"])
def test_where_tools_run(kernel, entry):
    kernel.ok(
        """
made = asyncio.Lock()
cell_loop = asyncio.get_running_loop()
@tool
def plain() -> str:
    return threading.current_thread().name
@tool(runs_on="main")
def on_main() -> str:
    agent_was_here = globals()["mark"] = threading.current_thread() is threading.main_thread()
    return "main"
@tool(runs_on="kernel_loop")
async def on_loop() -> str:
    async with made:
        return str(asyncio.get_running_loop() is cell_loop)
@tool
async def on_engine() -> str:
    return threading.current_thread().name
@tool(runs_on="main")
def exits() -> str:
    raise SystemExit("from main")
@tool(runs_on="main")
def stops() -> str:
    raise StopIteration("odd")
@tool(runs_on="kernel_loop")
async def loop_exits() -> str:
    raise SystemExit("from loop")
names = ["plain", "on_main", "on_loop", "on_engine", "exits", "stops", "loop_exits"]
agent.session.model = ScriptedModel([[call(name, str(i)) for i, name in enumerate(names)], "done"])
""".replace("cell_loop = asyncio.get_running_loop()", "cell_loop = get_ipython().kernel.io_loop.asyncio_loop")
    )
    kernel.ok(entry)
    assert kernel.ok("print(mark)") == "True\n"
    shown = kernel.ok("for entry in agent.session.state.tool_calls:\n    print(entry.name, entry.result.status, entry.result.text)").splitlines()
    assert shown[1:4] == ["on_main ok main", "on_loop ok True", "on_engine ok agent-kernel-engine"]
    assert shown[0].startswith("plain ok")
    assert [line.split()[1] for line in shown[4:]] == ["error"] * 3


@pytest.mark.parametrize("entry", ["%agent go", "%%time\n%agent go"])
def test_tools_on_the_kernels_loop_overlap(kernel, entry):
    kernel.ok("""
meeting = asyncio.Barrier(3)
@tool(runs_on="kernel_loop", timeout=10)
async def meet() -> str:
    await meeting.wait()
    return "met"
@tool(runs_on="main")
def on_main() -> str:
    return "main"
calls = [call("meet", "1"), call("on_main", "2"), call("meet", "3"), call("meet", "4")]
agent.session.model = ScriptedModel([calls, "done"])
""")
    kernel.ok(entry)
    assert kernel.ok("print([entry.result.text for entry in agent.session.state.tool_calls])") == "['met', 'main', 'met', 'met']\n"


@pytest.mark.parametrize("entry", ["%agent go", "def f():\n    %agent go\nf()"])
@pytest.mark.parametrize("place", ["auto", "main"])
def test_a_tool_that_calls_agent(kernel, entry, place):
    kernel.ok(f"""
inner = ScriptedModel(["inner answer"])
@tool(runs_on={place!r})
def same() -> str:
    return get_ipython().run_line_magic("agent", "again").text
@tool(runs_on={place!r})
def other() -> str:
    return get_ipython().run_line_magic("agent", "--new -m inner again").text
@tool
async def on_engine() -> str:
    return get_ipython().run_line_magic("agent", "--new -m inner again").text
agent.session.model = ScriptedModel([[call("same", "1")], [call("other", "2")], [call("on_engine", "3")], "outer answer"])
outer = agent.session
""")
    cell = kernel.run(entry)
    assert cell.status == "ok"
    assert "outer answer" in cell.text
    shown = kernel.ok("for entry in outer.state.tool_calls:\n    print(entry.result.status, '|', entry.result.text)").splitlines()
    assert shown[0].startswith("error |")
    assert "running in this session" in shown[0]
    assert shown[1] == "ok | inner answer"
    assert shown[2].startswith("error |")
    assert "async tool" in shown[2]


def test_two_turns_at_once(kernel):
    kernel.ok(
        "agent.session.model = ScriptedModel([[1, 'slow one']])\nother = ScriptedModel(['beside it'])\ntask = asyncio.create_task(agent.session.run('first'))\nawait asyncio.sleep(0.1)"
    )
    cell = kernel.run("%agent second")
    assert cell.error[0] == "SessionBusy"
    assert len(cell.error[1]) == 1
    assert "beside it" in kernel.ok("%agent --new -m other third")
    assert kernel.ok("print((await task).text)") == "slow one\n"


def test_approval_asks_on_the_input_line(kernel):
    kernel.ok("""
@tool(approve="ask")
def pay(amount: int) -> str:
    return f"paid {amount}"
calls = [call("pay", "1", '{"amount": 1}'), call("pay", "2", '{"amount": 2}'), call("pay", "3", '{"amount": 3}')]
agent.session.model = ScriptedModel([calls, "done", calls, "again"])
""")
    for entry in ("%agent go", "def f():\n    %agent go\nf()"):
        cell = kernel.send(entry, allow_stdin=True)
        asked = [kernel.answer(text) for text in ("y", "no", "too much")]
        assert kernel.wait(cell).status == "ok"
        assert sorted(number for prompt in asked for number in "123" if f'"amount": {number}' in prompt) == ["1", "2", "3"]
        assert sorted(kernel.ok("print([e.result.status for e in agent.session.state.tool_calls])")) == sorted("['ok', 'denied', 'denied']\n")
        assert "too much" in kernel.ok("print([e.result.text for e in agent.session.state.tool_calls])")


def test_approval_where_nobody_can_be_asked(kernel):
    kernel.ok("""
@tool(approve="ask")
def pay() -> str:
    return "paid"
agent.session.model = ScriptedModel([[call("pay", "1")], "done", [call("pay", "1")], "done", [call("pay", "1")], "done"])
""")
    assert "--approve allow" in kernel.ok("%agent go")
    assert "paid" in kernel.ok("%agent --approve allow go")
    assert "denied" in kernel.ok("%agent --approve deny go")


def test_a_turn_that_outlived_its_cell_cannot_ask(kernel):
    kernel.ok("""
@tool(approve="ask")
def pay() -> str:
    return "paid"
agent.session.model = ScriptedModel([[0.5, call("pay", "1")], "done"])
""")
    kernel.ok("task = asyncio.create_task(agent.session.run('go'))", allow_stdin=True)
    assert "takes no input" in kernel.ok("print((await task).tool_calls[0].result.text)")
    assert kernel.asked.empty()


def test_autoawait_off_falls_to_the_sync_entry(kernel):
    kernel.ok("agent.session.model = ScriptedModel(['one', 'two'])")
    kernel.ok("%autoawait off")
    assert "one" in kernel.ok("%agent hi")
    assert "two" in kernel.ok("%%agent\nhi")


def test_the_model_is_offline_without_a_key_and_says_so(kernel):
    kernel.ok("@tool\ndef revenue(region: str) -> int:\n    return len(region)")
    text = kernel.ok('%agent revenue(region="north") revenue(region="south")')
    assert text.count("revenue") >= 4
    assert kernel.ok("print(agent.session.model.name, [e.result.text for e in agent.session.state.tool_calls])") == "offline ['5', '5']\n"
