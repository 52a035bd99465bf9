"""Figures and other values that show themselves as an image."""

from __future__ import annotations

import io
from typing import Any

from msgspec import Struct

from agent_kernel.tools.loaded import is_loaded

_METHODS = (("_repr_png_", "image/png"), ("_repr_jpeg_", "image/jpeg"), ("_repr_svg_", "image/svg+xml"))  # IPython's display protocol


class Attachment(Struct, frozen=True, kw_only=True):
    """Rich output beside a result's text: the bytes of one image."""

    media_type: str
    data: bytes


def picture(value: Any) -> tuple[str, Attachment] | None:
    """Return a line of text and the image of a value that has one, else None."""
    figure = _matplotlib_figure(value)
    if figure is not None:
        out = io.BytesIO()
        figure.savefig(out, format="png", bbox_inches="tight")
        titles = [title for title in (axes.get_title() for axes in figure.axes) if title]
        named = f": {', '.join(titles)}" if titles else ""
        return f"Figure with {len(figure.axes)} axes{named} (PNG, {out.tell():,} bytes)", Attachment(media_type="image/png", data=out.getvalue())
    for method, media_type in _METHODS:
        data = _image(value, method)
        if data is not None:
            return f"{type(value).__name__} ({media_type}, {len(data):,} bytes)", Attachment(media_type=media_type, data=data)
    return None


def _matplotlib_figure(value: Any) -> Any:
    if is_loaded(value, "matplotlib.axes", "Axes"):
        value = value.figure
    return value if is_loaded(value, "matplotlib.figure", "Figure") else None


def _image(value: Any, method: str) -> bytes | None:
    """Call one method of the display protocol, looked up on the class: an object that answers to every name has no image."""
    show = getattr(type(value), method, None)
    if show is None or isinstance(value, type):
        return None
    try:
        data = show(value)
    except Exception:  # an object that cannot draw itself still has a text
        return None
    data = data[0] if isinstance(data, tuple) and data else data
    if isinstance(data, str) and method == "_repr_svg_":
        return data.encode("utf-8", "replace")
    return data if isinstance(data, bytes) else None
