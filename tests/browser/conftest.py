"""A real JupyterLab in a headless browser: one server per run, one page per module, notebooks opened in it by command.

The page's requests are recorded, so that a test can tell whether anything asked another host for something.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import secrets
import socket
import subprocess
import sys
import time
from pathlib import Path

import nbformat
import pytest
from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parents[2]
CHROMIUM = os.environ.get("CHROMIUM", "/usr/bin/chromium")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
NEWS = "@jupyterlab/apputils-extension"

LOAD = """\
%load_ext agent_kernel
import time, asyncio
from agent_kernel import ScriptedModel, tool
from agent_kernel.protocol.messages import ToolCall
from agent_kernel.protocol.events import ReasoningDelta, TextDelta
def call(name, id, arguments="{}"):
    return ToolCall(id=id, name=name, arguments=arguments)
"""


class Server:
    """A JupyterLab server on a free port of this machine, with a home of its own."""

    def __init__(self, home, root):
        self.root = root
        self.token = secrets.token_hex(16)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        settings = home / "lab-settings"
        (settings / NEWS).mkdir(parents=True)
        (settings / NEWS / "notification.jupyterlab-settings").write_text('{"fetchNews": "false", "checkForUpdates": false}')
        places = {"HOME": "", "JUPYTER_CONFIG_DIR": "config", "JUPYTER_DATA_DIR": "data", "JUPYTER_RUNTIME_DIR": "runtime", "IPYTHONDIR": "ipython"}
        places |= {"JUPYTERLAB_SETTINGS_DIR": "lab-settings", "JUPYTERLAB_WORKSPACES_DIR": "workspaces"}
        env = {name: value for name, value in os.environ.items() if not name.startswith(("AGENT_KERNEL_", "OPENAI_", "PYTEST_"))}
        env |= {name: str(home / place) for name, place in places.items()}
        env |= {"PYTHONPATH": str(ROOT), "AGENT_KERNEL_SETTINGS": str(home / "none.toml"), "AGENT_KERNEL_HOME": str(home / "agent-home")}
        self.env = env
        command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--ip=127.0.0.1", f"--port={self.port}"]
        command += [f"--IdentityProvider.token={self.token}", f"--ServerApp.root_dir={root}", "--ServerApp.port_retries=0"]
        command += [
            "--LabApp.news_url=None",
            "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
            "--LabApp.expose_app_in_browser=True",
        ]
        self.log = (home / "server.log").open("w+")
        self.process = subprocess.Popen(command, env=env, cwd=root, stdout=self.log, stderr=subprocess.STDOUT, start_new_session=True)
        self._wait()

    def _wait(self):
        end = time.monotonic() + 60
        while True:
            with contextlib.suppress(OSError):
                return self.api("GET", "/api/status")
            assert self.process.poll() is None, Path(self.log.name).read_text()[-3000:]
            assert time.monotonic() < end, "the server does not answer"
            time.sleep(0.1)

    def api(self, method, path):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        with contextlib.closing(connection):
            connection.request(method, path, headers={"Authorization": f"token {self.token}"})
            body = connection.getresponse().read()
        return json.loads(body) if body else None

    def close(self):
        with contextlib.suppress(OSError):
            for kernel in self.api("GET", "/api/kernels"):
                self.api("DELETE", f"/api/kernels/{kernel['id']}")
        self.process.terminate()
        self.process.wait(20)
        self.log.close()


class Lab:
    """The page, and the notebook that is open in it."""

    def __init__(self, server, page):
        self.server, self.page = server, page
        self.requests = []
        page.on("request", lambda request: self.requests.append(request.url))
        page.goto(f"{server.url}/lab?token={server.token}&reset")
        page.wait_for_function("() => window.jupyterapp", timeout=60_000)
        page.evaluate("() => window.jupyterapp.restored")

    def command(self, name, **args):
        return self.page.evaluate("([name, args]) => window.jupyterapp.commands.execute(name, args)", [name, args])

    def write(self, name, cells):
        """Write a notebook of code cells and return its path."""
        notebook = nbformat.v4.new_notebook()
        notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
        notebook.cells = [nbformat.v4.new_code_cell(cell) for cell in cells]
        path = self.server.root / name
        nbformat.write(notebook, str(path))
        return path

    def open(self, path, *, idle=True):
        """Open a notebook and wait for its kernel."""
        self.page.evaluate(
            """async ([path, args]) => {
                const widget = await window.jupyterapp.commands.execute('docmanager:open', {path, ...args});
                await widget.revealed; await widget.context.ready; window.notebook = widget;
            }""",
            [path.name, {"factory": "Notebook"}],
        )
        self.page.wait_for_selector(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-Cell")
        if idle:
            self.page.wait_for_function("() => window.notebook.sessionContext.session?.kernel?.status == 'idle'", timeout=60_000)

    def start(self, number):
        """Run a cell and return at once."""
        self.page.evaluate(
            """(number) => { const content = window.notebook.content; content.activeCellIndex = number; content.deselectAll();
                window.running = window.jupyterapp.commands.execute('notebook:run-cell').then(() => { window.running = null; }); }""",
            number,
        )

    def wait(self, timeout=30):
        """Wait until the cell that was started has ended and its output is drawn."""
        self.page.wait_for_function("() => !window.running && window.notebook.sessionContext.session.kernel.status == 'idle'", timeout=timeout * 1000)

    def run(self, number, timeout=30):
        self.start(number)
        self.wait(timeout)

    def cell(self, number):
        return self.page.locator(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-Cell").nth(number)

    def output(self, number):
        return self.cell(number).locator(".jp-OutputArea").first

    def save(self):
        self.page.evaluate("() => window.notebook.context.save()")

    def close_notebook(self):
        """Close the notebook and end its kernel."""
        self.page.evaluate("async () => { const panel = window.notebook; await panel.sessionContext.shutdown(); panel.dispose(); }")

    def theme(self, name):
        self.command("apputils:change-theme", theme=name)
        self.page.wait_for_function("(light) => document.body.dataset.jpThemeLight == light", arg=str("Light" in name).lower())

    def foreign(self):
        """Return the requests that went to another host."""
        own = (self.server.url, self.server.url.replace("http", "ws"), "data:", "blob:", "about:")
        return [url for url in self.requests if not url.startswith(own)]


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    server = Server(tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("notebooks"))
    yield server
    server.close()


@pytest.fixture(scope="module")
def browser_page():
    """A page of a fresh browser; per module, since its driver keeps an event loop running that no other test could bear."""
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser.new_page(viewport={"width": 1100, "height": 1000})
        browser.close()


@pytest.fixture(scope="module")
def shared_lab(server, browser_page):
    return Lab(server, browser_page)


@pytest.fixture
def lab(shared_lab):
    """The page, with no request recorded and no notebook left open afterwards."""
    shared_lab.requests.clear()
    yield shared_lab
    if shared_lab.page.evaluate("() => Boolean(window.notebook && !window.notebook.isDisposed)"):
        shared_lab.close_notebook()


@pytest.fixture
def load():
    """The first cell of a notebook."""
    return LOAD
