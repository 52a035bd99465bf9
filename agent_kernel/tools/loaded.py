"""Classes of libraries that the user may have imported; nothing is ever imported for them."""

from __future__ import annotations

import sys
from typing import Any


def is_loaded(value: Any, module: str, *names: str) -> bool:
    """Whether a value is an instance of one of a module's classes; False if the module is not loaded, or not wholly yet."""
    loaded = sys.modules.get(module)
    return loaded is not None and any(isinstance(value, getattr(loaded, name, ())) for name in names)
