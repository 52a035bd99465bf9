"""Settings: precedence, checks, and names that are close."""

from __future__ import annotations

import pytest

from agent_kernel.errors import SettingsError
from agent_kernel.notebook.settings import SETTINGS, Settings, Values


@pytest.fixture
def settings(tmp_path):
    def make(file="", **environ):
        path = tmp_path / "settings.toml"
        path.write_text(file, encoding="utf-8")
        return Settings(path=path, environ=environ)

    return make


def test_each_source_wins_over_the_next(settings):
    made = settings("max_rounds = 3\n", AGENT_KERNEL_MAX_ROUNDS="4", AGENT_KERNEL_MODEL="from-environment")
    assert made.values().max_rounds == 3
    assert made.values().model == "from-environment"
    assert made.values().max_parallel_tools == 8
    made.set("max_rounds", "2")
    assert made.values().max_rounds == 2
    assert made.values({"max_rounds": 1, "approve": None}).max_rounds == 1
    made.set("max_rounds", None)
    assert made.values().max_rounds == 3
    assert ("max_rounds", 3, "settings file") in made.rows()
    assert "from-environment" in repr(made)


def test_every_setting_is_a_value_and_every_value_a_setting():
    assert {setting.name for setting in SETTINGS} == set(Values.__struct_fields__)


@pytest.mark.parametrize(
    ("file", "environ", "words"),
    [
        ("max_round = 3", {}, ["max_round", "settings.toml", "max_rounds"]),
        ("max_rounds = 0", {}, ["max_rounds in", "1 to 1,000"]),
        ("max_rounds = true", {}, ["1 to 1,000"]),
        ("max_rounds = 3.5", {}, ["1 to 1,000"]),
        ("model = ''", {}, ["not empty"]),
        ("model = ", {}, ["cannot be read"]),
        ("", {"AGENT_KERNEL_MAX_ROUNDS": "x"}, ["AGENT_KERNEL_MAX_ROUNDS is 'x'"]),
        ("", {"AGENT_KERNEL_MODLE": "x"}, ["AGENT_KERNEL_MODLE", "model"]),
        ("", {"AGENT_KERNEL_APPROVE": "x"}, ["allow, ask, deny"]),
        ("", {"AGENT_KERNEL_ANSWER_AT_LIMIT": "maybe"}, ["true or false"]),
    ],
)
def test_a_wrong_source_is_named(settings, file, environ, words):
    with pytest.raises(SettingsError) as caught:
        settings(file, **environ).values()
    for word in words:
        assert word in str(caught.value)


def test_set_checks_name_and_value(settings):
    made = settings()
    with pytest.raises(SettingsError, match="Did you mean model"):
        made.set("modell", "x")
    with pytest.raises(SettingsError, match="whole number from 1 on"):
        made.set("max_result_chars", "0")
    assert made.set("max_result_chars", "10_000") == 10_000
    assert made.set("answer_at_limit", "on") is True
    assert made.values().answer_at_limit is True


def test_no_file_is_no_error(tmp_path):
    made = Settings(path=tmp_path / "none.toml", environ={"AGENT_KERNEL_VIEW": "plain", "AGENT_KERNEL_HOME": "", "OTHER": "x"})
    assert made.values().view == "plain"
    assert made.values().home is None


def test_the_file_is_found_by_the_environment(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text("max_rounds = 7", encoding="utf-8")
    assert Settings(environ={"AGENT_KERNEL_SETTINGS": str(path)}).values().max_rounds == 7
    assert Settings(environ={}).path.name == "settings.toml"
