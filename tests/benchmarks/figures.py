"""What the benchmarks share: how a figure is printed and when it fails.

Every figure is a ratio taken in one run, beside its aim; it fails only at four times the aim, so that a slow machine does not.
"""

from __future__ import annotations

import argparse

FAILS_AT = 4  # times the aim


class Figures:
    """Prints figures and remembers whether one failed."""

    def __init__(self) -> None:
        self.failed: list[str] = []

    def show(self, name: str, value: float, aim: float, detail: str = "") -> None:
        """Print one ratio; lower is better."""
        print(f"{name}: {value:.3f} (aim <= {aim:g}){'; ' + detail if detail else ''}", flush=True)
        if value > FAILS_AT * aim:
            self.failed.append(name)

    def exit_code(self) -> int:
        """Return 1 if a figure is over four times its aim."""
        for name in self.failed:
            print(f"FAILED: {name} is over {FAILS_AT} times its aim")
        return int(bool(self.failed))


def size(description: str) -> str:
    """Return the size that the command line asks for: ci (a tenth) or full."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--size", choices=("ci", "full"), default="ci")
    return str(parser.parse_args().size)
