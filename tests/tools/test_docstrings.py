"""Parameter descriptions in three styles, and docstrings that only look like one."""

from __future__ import annotations

import pytest

from agent_kernel.tools.docstrings import parse_docstring

GOOGLE = """Do it.

    More words.

    Args:
        a (int, optional): The first
            on two lines.
        *rest: The rest.
        b: The second: with a colon.

            And a paragraph.

    Returns:
        Something.
"""
NUMPY = """Do it.

    More words.

    Parameters
    ----------
    a : int, optional
        The first
        on two lines.
    *rest
        The rest.
    b, c : str
        The second: with a colon.

        And a paragraph.

    Returns
    -------
    str
        Something.
"""
REST = """Do it.

    More words.

    :param int a: The first
        on two lines.
    :param rest: The rest.
    :type rest: list
    :keyword b: The second: with a colon.
        And a paragraph.
    :returns: Something.
"""


@pytest.mark.parametrize("doc", [GOOGLE, NUMPY, REST], ids=["google", "numpy", "rest"])
def test_each_style_is_read(doc):
    docs = parse_docstring(doc)
    assert docs.parameters["a"] == "The first on two lines."
    assert docs.parameters["rest"] == "The rest."
    assert docs.parameters["b"] == "The second: with a colon. And a paragraph."
    assert docs.text.startswith("Do it.\n\nMore words.")
    assert "The first" not in docs.text
    assert "Something." in docs.text


def test_numpy_names_share_a_description():
    assert parse_docstring(NUMPY).parameters["c"].startswith("The second")


@pytest.mark.parametrize("doc", ["One line.", "Args: none to speak of.", "Args:", "Parameters\n\nare not here", "See :mod:`x`: it.", ""])
def test_what_only_looks_like_a_section_is_text(doc):
    docs = parse_docstring(doc)
    assert docs.parameters == {}
    assert docs.text == doc


def test_no_docstring_is_no_text():
    assert parse_docstring(None).text == ""
