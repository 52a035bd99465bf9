"""The console script ``agent-kernel``: a demonstration turn in a real kernel, and a doctor for the history. The only door to jupyter_client."""

from __future__ import annotations

import argparse
import os
import queue
import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

QUICKSTART = "00_quickstart.ipynb"
TIMEOUT = 120.0  # seconds that a cell of the demonstration may take, on the slowest machine we think of

TOOLS = '''\
import time
from agent_kernel import tool

@tool
def revenue(region: str) -> int:
    """Revenue of a region, from a fast table."""
    time.sleep(0.3)
    return {"north": 1200, "south": 950}[region]

@tool
def forecast(region: str, years: int = 1) -> str:
    """Forecast for a region, from a slow model."""
    time.sleep(1.5)
    return f"{region}: +{3 * years} % in {years} years"
'''

TURN = """\
%%agent -m offline
Compare the regions:
forecast(region="north", years=3)
revenue(region="north")
revenue(region="south")
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the console script and return its exit status."""
    parser = argparse.ArgumentParser(prog="agent-kernel", description="Agent turns in Jupyter: %%load_ext agent_kernel, then %%%%agent in a cell.")
    parser.add_argument("--version", action="version", version=f"agent-kernel {_version()}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    commands.add_parser("demo", help="run a turn with parallel tools in a real kernel, offline, and show how to open the quickstart")
    doctor_ = commands.add_parser("doctor", help="look through the kept history, its index and outputs, and say what is wrong with them")
    doctor_.add_argument("home", nargs="?", type=Path, metavar="HOME", help="default: AGENT_KERNEL_HOME, else this user's data folder")
    doctor_.add_argument("--fix", action="store_true", help="mend what can be mended; no line of the history is lost by it")
    chosen = parser.parse_args(arguments)
    if chosen.command is None:
        parser.print_help()
        return 0
    return demo() if chosen.command == "demo" else doctor(chosen.home, fix=chosen.fix)


def _version() -> str:
    """Return the version, which stands in the face of the package that this file belongs to and must not import."""
    return str(sys.modules["agent_kernel"].__version__)


def demo() -> int:
    """Stream a turn from a kernel to the terminal; the exit status is 0 if it completed."""
    print("Starting a kernel ...", flush=True)
    try:
        with _kernel() as client:
            for code in ("%load_ext agent_kernel", TOOLS, TURN):
                print("\n" + "\n".join(f"    {line}" for line in code.splitlines()) + "\n", flush=True)
                if not _run(client, code):
                    return 1
    except (RuntimeError, OSError) as error:
        print(f"The kernel could not be used: {error}", file=sys.stderr)
        return 1
    print(f"\nThe same in JupyterLab:\n\n    {_open_command()}")
    return 0


def doctor(home: Path | None, *, fix: bool) -> int:
    """Print what is wrong with a home; the exit status is 0 if nothing is, or if all of it was mended."""
    from agent_kernel.store.doctor import checkup  # noqa: PLC0415  # imports what the other commands do not need

    home, found = checkup(home, fix=fix)
    if not home.exists():
        print(f"There is no history at {home}.")
        return 0
    left = [finding for finding in found if finding.level == "problem" and not finding.mended]
    for finding in found:
        outcome = " (mended)" if finding.mended else " (--fix mends it)" if finding.mend is not None and not fix else ""
        print(f"{finding.level}: {finding.path} {finding.text}{outcome}")
    print(f"{home}: {'no problems' if not left else f'{len(left)} problem' + 's' * (len(left) > 1)}.")
    return int(bool(left))


@contextmanager
def _kernel() -> Iterator[Any]:
    """Start a kernel of this very environment and give its client."""
    from jupyter_client.kernelspec import KernelSpec  # noqa: PLC0415  # --version and --help need no kernel
    from jupyter_client.manager import KernelManager  # noqa: PLC0415  # as above

    manager = KernelManager()
    manager._kernel_spec = KernelSpec(  # noqa: SLF001  # a spec need not be installed to be run
        argv=[sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}", "--log-level=ERROR"],
        display_name="agent-kernel demo",
        language="python",
    )
    with TemporaryDirectory(prefix="agent-kernel-demo-") as home:  # a demonstration is no session to keep among the person's own
        manager.start_kernel(env={**os.environ, "AGENT_KERNEL_VIEW": "plain", "AGENT_KERNEL_HOME": home})
        client = manager.client()
        try:
            client.start_channels()
            client.wait_for_ready(timeout=TIMEOUT)
            yield client
        finally:
            client.stop_channels()
            manager.shutdown_kernel(now=True)


def _run(client: Any, code: str) -> bool:
    """Run a cell, print what it writes as it comes, and tell whether it ended well."""
    sent = client.execute(code, allow_stdin=False)
    good = True
    for kind, content in _published(client, sent):
        if kind == "stream":
            print(content["text"], end="", flush=True)
        elif kind in {"display_data", "execute_result"}:
            print(content["data"].get("text/plain", ""), flush=True)
        elif kind == "error":
            good = False
            print("\n".join(content["traceback"]), file=sys.stderr, flush=True)
    return good


def _published(client: Any, sent: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield type and content of what a cell publishes, until it is idle.

    Raises:
        RuntimeError: The kernel has died, or is silent for too long.
    """
    deadline = time.monotonic() + TIMEOUT
    while time.monotonic() < deadline:
        try:
            message = client.get_iopub_msg(timeout=1)
        except queue.Empty:
            if not client.is_alive():
                raise RuntimeError("it has died") from None
            continue
        if message["parent_header"].get("msg_id") != sent:
            continue
        kind, content = message["msg_type"], message["content"]
        if kind == "status" and content["execution_state"] == "idle":
            return
        yield kind, content
    raise RuntimeError(f"no answer within {TIMEOUT:.0f} s")


def _open_command() -> str:
    """Return the shell command that opens the quickstart, or JupyterLab alone where the notebook is not on this machine."""
    notebook = Path(__file__).resolve().parents[2] / "notebooks" / QUICKSTART
    lab = Path(sys.executable).with_name("jupyter-lab")
    as_root = ["--allow-root"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []  # without it the server refuses to start
    return shlex.join([str(lab) if lab.exists() else "jupyter-lab", *as_root, *([str(notebook)] if notebook.exists() else [])])


if __name__ == "__main__":
    sys.exit(main())
