"""What starting costs, as multiples of ``import msgspec`` taken in the same run, each in a fresh interpreter.

Run: ``python tests/benchmarks/bench_start.py [--size full]``.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from figures import Figures, size

SIZES = {"ci": 3, "full": 15}

MSGSPEC = """
import time
began = time.perf_counter()
import msgspec
print(time.perf_counter() - began)
"""

FACE = """
import sys, time
began = time.perf_counter()
from agent_kernel import Session, tool
print(time.perf_counter() - began)
heavy = {"openai", "duckdb", "IPython", "ipywidgets", "anywidget", "pydantic", "pandas"} & set(sys.modules)
assert not heavy, heavy
"""

SHELL = """
import sys, time
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
"""

LOAD = (
    SHELL
    + """
before = set(sys.modules)
began = time.perf_counter()
shell.run_line_magic("load_ext", "agent_kernel")
print(time.perf_counter() - began)
"""
)

FIRST = (
    SHELL
    + """
class First:
    at = None
    def write(self, text):
        if self.at is None and text.strip():
            self.at = time.perf_counter()
        return len(text)
    def flush(self):
        pass
out, sys.stdout = sys.stdout, First()
began = time.perf_counter()
shell.run_line_magic("load_ext", "agent_kernel")
shell.run_cell("%%agent\\nhello")
first, sys.stdout = sys.stdout, out
print(first.at - began)
"""
)


def seconds(code: str) -> float:
    """Return what a fresh interpreter printed last."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    return float(done.stdout.strip().splitlines()[-1])


def main() -> int:
    """Print the figures."""
    rounds = SIZES[size(__doc__)]
    for code in (MSGSPEC, FACE, LOAD, FIRST):
        seconds(code)  # compiled files and the disk's cache are there from here on
    taken = {
        name: statistics.median(seconds(code) for _ in range(rounds))
        for name, code in (("msgspec", MSGSPEC), ("face", FACE), ("load", LOAD), ("first", FIRST))
    }
    figures = Figures()
    base = taken["msgspec"]
    print(f"import msgspec: {base * 1e3:.1f} ms, the unit of what follows")
    for name, what, aim in (
        ("face", "from agent_kernel import Session, tool", 5.0),
        ("load", "%load_ext agent_kernel in a started shell", 6.0),
        ("first", "load and first offline turn, to its first text", 12.0),
    ):
        figures.show(what, taken[name] / base, aim, f"{taken[name] * 1e3:.1f} ms")
    return figures.exit_code()


if __name__ == "__main__":
    sys.exit(main())
