"""Errors as people see them: one line, no traceback through our files, and the facts that code branches on."""

import pytest
from IPython.core.interactiveshell import InteractiveShell

from agent_kernel import errors


def test_a_cell_shows_one_line(capsys):
    shell = InteractiveShell()
    shell.user_ns["errors"] = errors
    outcome = shell.run_cell("raise errors.SettingsError('Unknown setting. Did you mean x?')")
    assert isinstance(outcome.error_in_exec, errors.SettingsError)
    shown = capsys.readouterr()
    assert (shown.out + shown.err).strip() == "SettingsError: Unknown setting. Did you mean x?"


@pytest.mark.parametrize(
    ("kind", "retryable"),
    [
        (errors.ModelConnectionError, True),
        (errors.ModelRateLimited, True),
        (errors.ModelRejected, False),
        (errors.ModelRefused, False),
        (errors.ModelProtocolError, False),
        (errors.EmptyAnswer, False),
    ],
)
def test_model_errors_say_whether_to_try_again(kind, retryable):
    assert kind("x").retryable is retryable
    assert kind("x", retryable=not retryable, kind="k", status=500, retry_after=2.0).retryable is not retryable
    assert kind("x").kind


def test_an_unknown_tool_names_close_ones():
    assert "Did you mean revenue?" in str(errors.UnknownTool("revenu", close=["revenue"]))
    assert "Tools on offer: a, b." in str(errors.UnknownTool("x", known=["a", "b"]))
    assert "No tools are on offer" in str(errors.UnknownTool("x"))


def test_an_interrupt_is_no_exception_that_user_code_swallows():
    assert not issubclass(errors.TurnInterrupted, Exception)
    assert issubclass(errors.TurnInterrupted, KeyboardInterrupt)
