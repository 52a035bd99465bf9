"""A real ipykernel over jupyter_client: cells are sent, messages recorded with their time, interrupts sent as signals."""

from __future__ import annotations

import os
import queue
import sys
import threading
import time
from pathlib import Path

import pytest
from jupyter_client import KernelManager
from jupyter_client.kernelspec import KernelSpec

ROOT = Path(__file__).resolve().parents[2]

PRELUDE = """
import time, asyncio, threading
from agent_kernel import ScriptedModel, Session, tool
from agent_kernel.protocol.messages import ToolCall
from agent_kernel.protocol.events import TextDelta
def call(name, id, arguments="{}"):
    return ToolCall(id=id, name=name, arguments=arguments)
"""


class Cell:
    """One executed cell: its reply and what it published, as (seconds since it was sent, type, content)."""

    def __init__(self, msg_id):
        self.msg_id = msg_id
        self.sent = time.monotonic()
        self.outputs = []
        self.reply = None
        self.replied = None
        self.idle = threading.Event()
        self.changed = threading.Condition()

    def note(self, kind, content):
        with self.changed:
            self.outputs.append((time.monotonic() - self.sent, kind, content))
            self.changed.notify_all()

    @property
    def status(self):
        return self.reply["status"]

    @property
    def text(self):
        """All text of the cell: streams, and the plain form of what it displayed."""
        parts = []
        for _, kind, content in self.outputs:
            if kind == "stream":
                parts.append(content["text"])
            elif kind in {"display_data", "execute_result", "update_display_data"}:
                parts.append(content["data"].get("text/plain", ""))
        return "".join(parts)

    @property
    def error(self):
        """Name and lines of the error, as shown; None where there is none."""
        for _, kind, content in self.outputs:
            if kind == "error":
                return content["ename"], content["traceback"]
        return None

    def kinds(self):
        return [kind for _, kind, _ in self.outputs]

    def when(self, text):
        """Seconds from sending the cell until a text was seen."""
        seen = ""
        for at, kind, content in self.outputs:
            if kind == "stream":
                seen += content["text"]
            elif kind in {"display_data", "update_display_data"}:
                seen += content["data"].get("text/plain", "") + content["data"].get("text/html", "")
            if text in seen:
                return at
        raise AssertionError(f"{text!r} is not in {seen!r}")

    def wait_for(self, text, timeout=15):
        """Wait until a text was seen."""
        end = time.monotonic() + timeout
        with self.changed:
            while True:
                try:
                    return self.when(text)
                except AssertionError:
                    if not self.changed.wait(end - time.monotonic()) or time.monotonic() > end:
                        raise


class Kernel:
    """A running kernel."""

    def __init__(self, env=None, extension=True):
        argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        if extension:
            argv += ["--ext", "agent_kernel"]
        self.manager = KernelManager()
        self.manager._kernel_spec = KernelSpec(argv=argv, display_name="test", language="python")  # the documented spec would have to be installed
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("AGENT_KERNEL_", "OPENAI_"))}
        clean |= {
            "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
            "AGENT_KERNEL_SETTINGS": str(ROOT / "no-such-settings.toml"),
            "AGENT_KERNEL_HOME": os.environ["AGENT_KERNEL_HOME"],  # the test's own: kernels of one test share it
            **(env or {}),
        }
        self.manager.start_kernel(env=clean, stderr=None)
        self.client = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=60)
        self.cells = {}
        self.asked = queue.Queue()  # input requests
        self.other = []  # iopub messages of no cell of ours
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=target, daemon=True) for target in (self._iopub, self._shell, self._stdin)]
        for thread in self._threads:
            thread.start()

    def send(self, code, *, cell_id=None, allow_stdin=False):
        """Send a cell and return at once."""
        content = {
            "code": code,
            "silent": False,
            "store_history": True,
            "user_expressions": {},
            "allow_stdin": allow_stdin,
            "stop_on_error": True,
        }
        message = self.client.session.msg("execute_request", content, metadata={"cellId": cell_id} if cell_id else {})
        cell = self.cells[message["header"]["msg_id"]] = Cell(message["header"]["msg_id"])
        self.client.shell_channel.send(message)
        return cell

    def wait(self, cell, timeout=30):
        """Wait until a cell has its reply and is idle."""
        assert cell.idle.wait(timeout), f"the cell is still running after {timeout} s; so far: {cell.text!r} {cell.error}"
        return cell

    def run(self, code, timeout=30, **options):
        """Run a cell to its end."""
        return self.wait(self.send(code, **options), timeout)

    def ok(self, code, **options):
        """Run a cell that must end well, and return its text."""
        cell = self.run(code, **options)
        assert cell.status == "ok", "\n".join(cell.reply["traceback"])
        return cell.text

    def wait_asleep(self, timeout=15):
        """Wait until the main thread is inside a sleep: what a tool prints before it is seen earlier than the sleep begins."""
        end = time.monotonic() + timeout
        wchan = Path(f"/proc/{self.manager.provisioner.pid}/wchan")
        while "nanosleep" not in wchan.read_text():
            assert time.monotonic() < end, f"the main thread is in {wchan.read_text()!r}"
            time.sleep(0.001)

    def interrupt(self):
        """Interrupt the kernel and return when it was sent."""
        self.manager.interrupt_kernel()
        return time.monotonic()

    def answer(self, text, timeout=15):
        """Answer the next input request and return its prompt."""
        prompt = self.asked.get(timeout=timeout)["content"]["prompt"]
        self.client.input(text)
        return prompt

    def close(self):
        self._stop.set()
        for thread in self._threads:
            thread.join(5)
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)
        self.manager.cleanup_resources()

    def _messages(self, channel):
        while not self._stop.is_set():
            try:
                yield channel.get_msg(timeout=0.2)
            except queue.Empty:
                continue

    def _iopub(self):
        for message in self._messages(self.client.iopub_channel):
            cell = self.cells.get(message["parent_header"].get("msg_id"))
            kind, content = message["msg_type"], message["content"]
            if cell is None:
                self.other.append(message)
            elif kind == "status" and content["execution_state"] == "idle":
                cell.finished = True
                self._settle(cell)
            elif kind not in {"status", "execute_input"}:
                cell.note(kind, content)

    def _shell(self):
        for message in self._messages(self.client.shell_channel):
            cell = self.cells.get(message["parent_header"].get("msg_id"))
            if cell is not None:
                cell.reply, cell.replied = message["content"], time.monotonic()
                self._settle(cell)

    def _stdin(self):
        for message in self._messages(self.client.stdin_channel):
            self.asked.put(message)

    @staticmethod
    def _settle(cell):
        if cell.reply is not None and getattr(cell, "finished", False):
            cell.idle.set()


@pytest.fixture
def start_kernel():
    """A factory of kernels that end with the test."""
    started = []

    def start(**options):
        started.append(Kernel(**options))
        return started[-1]

    yield start
    for kernel in started:
        kernel.close()


@pytest.fixture
def kernel(start_kernel):
    """A kernel with the extension, and the prelude's names in its namespace."""
    kernel = start_kernel()
    kernel.ok(PRELUDE)
    return kernel
