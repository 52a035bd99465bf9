"""The console script."""

from __future__ import annotations

import os
import subprocess
import sys

import agent_kernel
from agent_kernel.notebook.cli import main


def run(*arguments):
    return subprocess.run([sys.executable, "-m", "agent_kernel.notebook.cli", *arguments], capture_output=True, text=True, timeout=120, check=False)


def test_version_and_help(capsys):
    assert run("--version").stdout == f"agent-kernel {agent_kernel.__version__}\n"
    assert main([]) == 0
    assert "demo" in capsys.readouterr().out
    assert run("nosuch").returncode == 2


def test_the_demo_runs_a_turn_with_parallel_tools_in_a_kernel():
    done = run("demo")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    started, fast, slow = (done.stdout.index(text) for text in ("> forecast(", "< revenue ok", "< forecast ok"))
    assert started < fast < slow
    assert "jupyter-lab" in done.stdout.splitlines()[-1]
    assert ("--allow-root" in done.stdout.splitlines()[-1]) == (os.geteuid() == 0)
