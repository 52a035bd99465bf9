"""IPython in a terminal: the sync entry, plain text, Ctrl-C."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pexpect
import pytest

ROOT = Path(__file__).resolve().parents[2]

TERMINAL = """
from IPython.terminal.interactiveshell import TerminalInteractiveShell
shell = TerminalInteractiveShell.instance()
shell.extension_manager.load_extension("agent_kernel")
def run(code):
    result = shell.run_cell(code)
    result.raise_error()
run('''
import asyncio, threading
from agent_kernel import tool, ScriptedModel
from agent_kernel.protocol.messages import ToolCall
@tool(runs_on="main")
def on_main() -> str:
    return threading.current_thread().name
@tool(runs_on="kernel_loop")
async def on_loop() -> str:
    await asyncio.sleep(0)
    return "looped"
@tool(approve="ask")
def pay() -> str:
    return "paid"
calls = [ToolCall(id=str(i), name=name) for i, name in enumerate(("on_main", "on_loop", "pay"))]
agent.session.model = ScriptedModel([calls, "the answer", "second"])
''')
run("%agent go?")
run("x = %agent go")
run("print(x.text, agent.session.messages[-1].role)")
"""


@pytest.fixture
def environ(tmp_path):
    settings = str(tmp_path / "none.toml")
    return {**os.environ, "IPYTHONDIR": str(tmp_path), "PYTHONPATH": str(ROOT), "AGENT_KERNEL_SETTINGS": settings, "TERM": "dumb"}


def test_a_terminal_uses_the_sync_entry(environ):
    done = subprocess.run(
        [sys.executable, "-c", TERMINAL], capture_output=True, text=True, timeout=60, check=False, stdin=subprocess.DEVNULL, env=environ
    )
    assert done.returncode == 0, done.stderr
    assert "< on_main ok, 0.0 s: MainThread" in done.stdout
    assert "< on_loop ok, 0.0 s: looped" in done.stdout
    assert "< pay denied" in done.stdout
    assert "--approve allow" in done.stdout
    assert done.stdout.endswith("the answer\nsecond\nsecond assistant\n")
    assert "Out[" not in done.stdout
    assert done.stderr == ""


@pytest.fixture
def terminal(environ):
    options = ["--simple-prompt", "--no-banner", "--colors=NoColor", "--ext=agent_kernel"]
    child = pexpect.spawn(sys.executable, ["-m", "IPython", *options], env=environ, encoding="utf-8", timeout=30)
    child.expect(r"In \[1\]: ")
    yield child
    child.close(force=True)


def test_ctrl_c_ends_the_turn_with_one_line(terminal):
    terminal.sendline(
        "from agent_kernel import ScriptedModel; agent.session.model = ScriptedModel([['partial ' + 'text', 30], 'continued' + ' well'])"
    )
    terminal.expect(r"In \[2\]: ")
    terminal.sendline("%agent what is this?")
    terminal.expect_exact("partial text")
    sent = time.monotonic()
    terminal.sendintr()
    terminal.expect_exact("The turn was interrupted. Continue it with %agent retry.")
    latency = time.monotonic() - sent
    print(f"the turn ended {latency * 1000:.0f} ms after Ctrl-C")
    assert latency < 1
    terminal.expect(r"In \[3\]: ")
    assert "Traceback" not in terminal.before
    terminal.sendline("%agent retry")
    terminal.expect_exact("continued well")
    terminal.expect(r"In \[4\]: ")
    terminal.sendline("exit")
    terminal.expect(pexpect.EOF)


def test_approval_asks_in_the_terminal(terminal):
    for line in (
        "from agent_kernel import ScriptedModel, tool; from agent_kernel.protocol.messages import ToolCall",
        "pay = tool(lambda: 'paid ' + 'out', name='pay', description='Pay.', approve='ask')",
        "agent.session.model = ScriptedModel([[ToolCall(id='1', name='pay')], 'all ' + 'done'])",
    ):
        terminal.sendline(line)
        terminal.expect(r"In \[\d\]: ")
    terminal.sendline("%agent go")
    terminal.expect_exact("Run pay({})?")
    terminal.sendline("y")
    terminal.expect_exact("paid out")
    terminal.expect_exact("all done")
