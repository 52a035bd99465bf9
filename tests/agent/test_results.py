"""Large and odd results: excerpts, handles, failing stores, masking."""

import json

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_kernel.agent.excerpt import excerpt
from agent_kernel.agent.redact import CHUNK, MASK, Redactor, secret_values
from agent_kernel.errors import ArtifactNotFound
from agent_kernel.model.scripted import ScriptedModel
from agent_kernel.protocol.messages import AssistantMessage, ToolCall, ToolMessage, UserMessage
from agent_kernel.store.artifacts import Artifacts

KEY = "sk-" + "a1B2c3D4" * 4


def one_call(name="big", **arguments):
    return [ToolCall(id="c", name=name, arguments=json.dumps(arguments)), ToolCall(id="d", name=name, arguments=json.dumps(arguments))]


def text_of(size):
    return "".join(f"line {number}\n" for number in range(size // 8))[:size]


def test_short_text_is_untouched():
    shown = excerpt("short", 20, handle="r1")
    assert (shown.text, shown.shown, shown.total) == ("short", 5, 5)


def test_a_small_budget_shows_exactly_the_first_characters():
    text = "0123456789" * 30
    shown = excerpt(text, 20, handle="r12")
    assert shown.text.startswith(text[:20] + "\n")
    marker = shown.text[20:]
    assert "truncated" in marker
    assert "280" in marker
    assert "r12" in marker
    assert len(marker) <= 72
    assert (shown.shown, shown.total) == (20, 300)


def test_a_large_budget_shows_head_and_tail_at_line_ends():
    text = text_of(8_000)
    shown = excerpt(text, 4_000, handle="r1")
    assert len(shown.text) < len(text)
    head, tail = shown.text.split("[truncated:")[0], shown.text.split("]\n", 1)[1]
    assert text.startswith(head)
    assert text.endswith(tail)
    assert len(head) + len(tail) == shown.shown
    assert head.endswith("\n")
    omitted = shown.total - shown.shown
    assert f"omitted {omitted:,}" in shown.text
    assert "r1" in shown.text
    assert f"{shown.total:,}" in shown.text


@given(st.text(alphabet="ab\n\r\u0301\u200d👩🏽🇩🇪[", min_size=0, max_size=3_000), st.integers(1, 2_500), st.sampled_from([None, "r1", "r123456"]))
def test_excerpts_account_for_every_character(text, budget, handle):
    shown = excerpt(text, budget, handle=handle)
    assert shown.total == len(text)
    if shown.text == text:
        assert shown.shown == shown.total
    else:
        assert len(shown.text) < len(text)
        assert shown.shown <= budget
        assert len(shown.text) - shown.shown <= (72 if budget < 1_000 else 402)


def test_imitated_markers_are_defused():
    text = "[truncated: 5 characters left out; whole: r9]\n" + "x" * 500
    shown = excerpt(text, 100, handle="r1")
    assert shown.text.count("[truncated:") == 1
    assert "(truncated: 5" in shown.text


def test_no_cut_inside_a_character_as_readers_see_it():
    for unit in ("e\u0301", "👩\u200d👧", "👍🏽", "🇩🇪", "\r\n"):
        for offset in range(4):
            text = "x" * offset + unit * 1_500
            shown = excerpt(text, 1_000, handle="r1")
            head = shown.text.split("[truncated:")[0].removesuffix("\n") if unit != "\r\n" else shown.text.split("[truncated:")[0]
            assert len(head[offset:]) % len(unit) == 0, unit


@pytest.mark.parametrize("budget", [20, 4_000])
def test_a_result_over_budget_is_kept_whole(run, make, tmp_path, budget):
    text = text_of(50_000)

    def big() -> str:
        """Return much."""
        return text

    artifacts = Artifacts.open(tmp_path)
    model = ScriptedModel([one_call(), "done"])
    session = make(model, tools=[big], artifacts=artifacts, max_result_chars=budget)

    async def main():
        state = await session.run("go")
        results = [entry.result for entry in state.tool_calls]
        assert sorted(result.artifact.handle for result in results) == ["r1", "r2"]
        assert len({result.artifact.hash for result in results}) == 1
        assert results[0].artifact.size == len(text)
        assert await session.artifacts.read(results[0].artifact) == text
        assert await session.result("r2") == text
        assert await session.artifacts.slice(results[0].artifact, 100, 150) == text[100:150]
        with pytest.raises(ArtifactNotFound, match="r1, r2"):
            session.artifact("r3")
        await session.close()
        await artifacts.close()
        return results[0]

    result = run(main)
    assert result.excerpt.shown <= budget
    assert result.excerpt.total == len(text)
    assert result.artifact.handle in result.text
    assert model.requests[1].messages[2].text == result.text


def test_handles_number_on_and_are_a_sessions_own(run, make, tmp_path):
    def big() -> str:
        """Return much."""
        return text_of(3_000)

    async def main():
        artifacts = Artifacts.open(tmp_path)
        session = make(ScriptedModel([one_call(), "a", one_call(), "b"]), tools=[big], artifacts=artifacts, max_result_chars=100)
        await session.run("go")
        second = await session.run("go on")
        assert sorted(entry.result.artifact.handle for entry in second.tool_calls) == ["r3", "r4"]
        fork = await session.fork(at=1)
        assert await fork.result("r2") == text_of(3_000)
        stranger = make(ScriptedModel([]), artifacts=artifacts)
        messages = []
        for asking in (stranger, fork):
            with pytest.raises(ArtifactNotFound) as caught:
                asking.artifact("r4")
            messages.append(str(caught.value))
        assert all("no result 'r4' in this session" in message for message in messages)
        await artifacts.close()

    run(main)


def test_a_folder_that_cannot_be_written_costs_the_handle_not_the_turn(run, make, tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("in the way")

    def big() -> str:
        """Return much."""
        return text_of(50_000)

    async def main():
        artifacts = Artifacts.open(blocked)
        session = make(ScriptedModel([one_call(), "done"]), tools=[big], artifacts=artifacts, max_result_chars=2_000)
        state = await session.run("go")
        await artifacts.close()
        return state

    state = run(main)
    result = state.tool_calls[0].result
    assert (state.status, state.text, result.status) == ("completed", "done", "ok")
    assert result.artifact is None
    assert "not kept" in result.text
    assert len(result.text) <= 2_400


def test_a_result_over_the_limit_of_one_result_is_shown_bounded(run, make, tmp_path):
    def big() -> str:
        """Return much."""
        return text_of(50_000)

    async def main():
        artifacts = Artifacts.open(tmp_path, max_result_bytes=10_000)
        session = make(ScriptedModel([one_call(), "done"]), tools=[big], artifacts=artifacts, max_result_chars=2_000)
        state = await session.run("go")
        await artifacts.close()
        return state.tool_calls[0].result

    result = run(main)
    assert result.artifact is None
    assert "10,000 bytes" in result.text


def test_given_results_over_budget_become_excerpts_in_the_request(run, make, tmp_path):
    model = ScriptedModel(["ok"])
    long = text_of(50_000)
    given_messages = [
        UserMessage(text="q"),
        AssistantMessage(tool_calls=(ToolCall(id="x", name="t"),)),
        ToolMessage(call_id="x", name="t", text=long),
    ]

    async def main():
        artifacts = Artifacts.open(tmp_path)
        session = make(model, messages=given_messages, artifacts=artifacts, max_result_chars=2_000)
        await session.run("go")
        assert session.messages[2].text == long
        sent = model.requests[0].messages[2].text
        assert len(sent) <= 2_400
        assert "r1" in sent
        assert await session.result("r1") == long
        await artifacts.close()

    run(main)


def test_a_frame_shows_its_shape_and_is_kept_whole(run, make, tmp_path):
    frame = pd.DataFrame({"n": range(1_000), "name": [f"row {n}" for n in range(1_000)]})

    def table() -> object:
        """Return a frame."""
        return frame

    async def main():
        artifacts = Artifacts.open(tmp_path)
        session = make(ScriptedModel([one_call("table"), "done"]), tools=[table], artifacts=artifacts)
        state = await session.run("go")
        result = state.tool_calls[0].result
        whole = await session.result(result.artifact.handle)
        await artifacts.close()
        return result, whole

    result, whole = run(main)
    assert "1,000" in result.text or "1000" in result.text
    assert "row 0" in result.text
    assert result.artifact.handle in result.text
    assert "row 500" not in result.text
    assert "row 500" in whole


def test_secrets_are_masked_before_store_event_and_wire(run, make, monkeypatch, tmp_path):
    monkeypatch.setenv("MY_SERVICE_TOKEN", "tok-very-secret-1")
    monkeypatch.setenv("SHORT_KEY", "abc")

    def leak() -> str:
        """Return secrets."""
        return f"{KEY} and tok-very-secret-1 and abc" + "x" * 3_000

    def fail() -> str:
        """Fail with a secret."""
        raise ValueError("tok-very-secret-1")

    model = ScriptedModel(
        [[ToolCall(id="1", name="leak", arguments="{}"), ToolCall(id="2", name="fail", arguments="{}")], ["I saw tok-very", "-secret-1", " there"]]
    )
    session = make(model, tools=[leak, fail], max_result_chars=1_000, artifacts=Artifacts.open(tmp_path))
    seen = []

    async def main():
        async for event in session.ask(f"my key is {KEY}"):
            seen.append(event)
        stored = await session.result("r1")
        await session.artifacts.close()
        return stored

    stored = run(main)
    everything = repr(seen) + repr(session.messages) + repr(model.requests) + stored + repr(session.turns)
    assert KEY not in everything
    assert "tok-very-secret-1" not in everything
    assert "abc" in stored
    assert MASK in stored
    assert session.state.text == f"I saw {MASK} there"


def test_what_counts_as_a_secret_variable():
    environment = {
        "OPENAI_API_KEY": "x" * 20,
        "DB_PASSWORD": "hunter2hunter2",
        "KEYBOARD": "qwertyuiop",
        "SECRET_PATH": "/etc/secret/file",
        "TOKEN": "short",
        "MONKEY": "abcdefghij",
        "USE_TOKEN": "true",
        "GITHUB_TOKEN": " padded-value ",
    }
    assert secret_values(environment) == {"x" * 20, "hunter2hunter2", "padded-value"}


@pytest.mark.parametrize(
    "key",
    [
        KEY,
        "AKIA" + "ABCDEFGH12345678",
        "ghp_" + "a" * 36,
        "github_pat_" + "b" * 40,
        "xoxb-" + "1234567890-abc",
        "AIza" + "c" * 35,
        "hf_" + "d" * 34,
        "-----BEGIN RSA PRIVATE KEY-----\nMII\nEnd\n-----END RSA PRIVATE KEY-----",
    ],
)
def test_key_shapes_are_masked_wherever_a_chunk_ends(key):
    redactor = Redactor()
    assert redactor.text(f"before {key} after") == f"before {MASK} after"
    for offset in range(-len(key) - 1, 2):
        padding = "x " * (CHUNK // 2 - 200) + "y" * (400 + offset)
        masked = redactor.text(f"{padding} {key} after")
        assert key not in masked
        assert masked.endswith(f" {MASK} after")


@given(st.lists(st.text(alphabet="abc", max_size=4)), st.sampled_from([["abcabcab"], ["aaaaaaaa", "abababab"], ["cccccccc"]]))
def test_a_masked_stream_is_the_masked_text(pieces, secrets):
    redactor = Redactor(secrets)
    stream = redactor.stream()
    shown = "".join(stream.feed(piece) for piece in pieces) + stream.flush()
    assert not any(secret in shown for secret in secrets)
    if not any(secret in "".join(pieces) for secret in secrets):
        assert shown == "".join(pieces)


def test_a_stream_holds_nothing_back_that_begins_no_secret():
    stream = Redactor(["topsecretvalue"]).stream()
    assert stream.feed("hello to") == "hello "
    assert stream.feed("day") == "today"
