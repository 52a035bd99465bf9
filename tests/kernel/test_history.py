"""Sessions that outlive their kernel: several real kernels on one home, a killed one, a home that cannot be written, and the commands."""

from __future__ import annotations

import json
import os
import re
import signal

import nbformat
import pytest

PRELUDE = """
import time
from agent_kernel import ScriptedModel, tool
from agent_kernel.protocol.messages import ToolCall
def call(name, id, arguments="{}"):
    return ToolCall(id=id, name=name, arguments=arguments)
m = ScriptedModel([f"answer {i}" for i in range(20)])
"""


@pytest.fixture
def start(start_kernel):
    """A factory of kernels with the prelude."""

    def started(**env):
        kernel = start_kernel(env=env)
        kernel.ok(PRELUDE)
        return kernel

    return started


def session_id(kernel):
    return kernel.ok("print(agent.session.id)").strip()


def error_of(kernel, code):
    cell = kernel.run(code)
    assert cell.status == "error", cell.text
    return cell.error[0], "\n".join(cell.error[1])


def kill(kernel):
    process = kernel.manager.provisioner.process
    os.kill(process.pid, signal.SIGKILL)
    process.wait(10)


def test_another_kernel_finds_resumes_and_forks_while_the_first_runs(start):
    first, second = start(), start()
    first.ok("%agent -m m --name north How is the north?")
    first.ok("%agent -m m And the south?")
    mine = session_id(first)
    listed = second.ok("%agent sessions")
    assert mine[:8] in listed
    assert "2 turns" in listed
    assert f"The current session is north ({mine[:8]})." in second.ok(f"%agent use {mine[:6]}")
    assert "user: And the south?\nassistant: answer 1" in second.ok("%agent show")
    name, shown = error_of(second, "%agent -m m And here?")
    assert name == "SessionBusy"
    assert f"process id {first.manager.provisioner.process.pid}" in shown
    assert "%agent fork" in shown
    second.ok("%agent -m m --fork And in a fork?")
    assert second.ok("print([x.text for x in m.requests[-1].messages[1:]])") == (
        "['How is the north?', 'answer 0', 'And the south?', 'answer 1', 'And in a fork?']\n"
    )
    assert session_id(second) != mine
    second.ok(f"%agent use {mine[:6]}")
    assert "which shares 1 turn with north" in second.ok("%agent fork --at 1 beside")
    second.ok("%agent -m m And here?")
    assert second.ok("print([x.text for x in m.requests[-1].messages[1:]])") == "['How is the north?', 'answer 0', 'And here?']\n"
    assert first.ok("print(len(agent.session.messages))") == "5\n"
    first.ok("%agent new elsewhere")  # leaves the session, so that others may ask in it
    second.ok(f"%agent use {mine[:6]}")
    second.ok("%agent -m m And now?")
    assert second.ok("print(len(m.requests[-1].messages))") == "6\n"
    name, _ = error_of(first, "%agent -m m --name north And I?")
    assert name == "SessionBusy"


def test_a_killed_kernels_rounds_are_all_found_and_its_finished_tools_do_not_run_again(start, tmp_path):
    effects = tmp_path / "effects"
    first = start()
    first.ok(f"""
@tool
def write(n: int) -> str:
    with open({str(effects)!r}, "a") as file:
        file.write(f"{{n}}\\n")
    return f"written {{n}}"
@tool
def hang() -> str:
    print("hanging", flush=True)
    time.sleep(60)
work = ScriptedModel([[call("write", "1", '{{"n": 1}}')], [call("write", "2", '{{"n": 2}}')], [call("hang", "3")]])
""")
    cell = first.send("%agent -m work --name job Do all of it")
    cell.wait_for("hanging")
    kill(first)
    second = start()
    assert "job" in second.ok("%agent sessions job")
    used = second.ok("%agent use job")
    assert "Its last prompt has no answer: %agent retry" in used
    mine = session_id(second)
    second.ok("agent.session.model = m")
    second.ok("%agent retry")
    sent = json.loads(second.ok("import msgspec\nprint(msgspec.json.encode(m.requests[-1].messages).decode())"))
    assert [message["role"] for message in sent] == ["system", "user", "assistant", "tool", "assistant", "tool"]
    assert [message["text"] for message in sent if message["role"] == "tool"] == ["written 1", "written 2"]
    assert effects.read_text() == "1\n2\n"
    third = start()
    assert "assistant: answer 0" in third.ok(f"%agent show {mine[:8]}")
    assert "asked 2 times" in (third.ok("%agent use job") and third.ok("%agent log"))


def test_a_new_kernel_offers_the_notebooks_last_session_once(start):
    first = start(JPY_SESSION_NAME="reports/north.ipynb")
    assert "new session" not in first.ok("%agent -m m one")
    mine = session_id(first)
    assert "reports/north.ipynb" in first.ok("print((await agent.history.list())[0].notebook)")
    second, other = start(JPY_SESSION_NAME="reports/north.ipynb"), start(JPY_SESSION_NAME="other.ipynb")
    assert f"%agent use {mine[:8]}" in second.ok("%agent -m m two")
    assert "%agent use" not in second.ok("%agent -m m three")
    assert "%agent use" not in second.ok("%agent -m m --new four")
    assert "%agent use" not in other.ok("%agent -m m five")


def test_a_home_that_cannot_be_written_is_told_once_and_written_later(start, tmp_path):
    blocked = tmp_path / "blocked"
    blocked.write_text("a file where a folder should be")
    kernel = start(AGENT_KERNEL_HOME=str(blocked / "home"))
    first = kernel.ok("%agent -m m one")
    assert "answer 0" in first
    assert first.count("This session is not being kept") == 1
    second = kernel.ok("%agent -m m two")
    assert "answer 1" in second
    assert "kept" not in second
    assert "in memory only" in kernel.ok("%agent status")
    blocked.unlink()
    assert "This session is kept again" in kernel.ok("%agent -m m three")
    mine = session_id(kernel)
    other = start(AGENT_KERNEL_HOME=str(blocked / "home"))
    assert other.ok(f"%agent show {mine[:8]}").count("user: ") == 3


def test_log_search_and_show(start):
    kernel = start()
    kernel.ok(
        "@tool\ndef look() -> str:\n    return 'first line\\nthe needle is here\\nlast line'\nagent.session.model = m2 = ScriptedModel([[call('look', '1')], 'found it', 'two', 'three'])"
    )
    kernel.ok("%agent look for it")
    kernel.ok("%agent second", cell_id="A")
    kernel.ok("%agent second", cell_id="A")
    mine = session_id(kernel)
    found = kernel.ok("%agent search NEEDLE").splitlines()
    assert len(found) == 2
    assert found[0].startswith(mine[:8])
    assert "turn 1" in found[0]
    assert found[0].endswith("tool look: the needle is here")
    assert "Nothing that is kept holds 'no such'" in kernel.ok("%agent search no such")
    log = kernel.ok("%agent log").splitlines()
    assert len(log) == 2
    assert "look for it" in log[0]
    assert "completed, 1 tool call" in log[0]
    kernel.ok("%agent fork --at 1 branch")
    kernel.ok("%agent -m m on the branch")
    tree = kernel.ok("%agent log --tree").splitlines()
    assert [line.strip().split("  ")[0] for line in tree] == [mine[:8], "1", "2", "-", "* " + session_id(kernel)[:8], "2"]
    assert "(replaced)" in tree[3]
    assert "forked at 1" in tree[4]
    assert kernel.ok("%agent show 2") == "user: on the branch\nassistant: answer 0\n"
    assert "the needle" in kernel.ok(f"%agent show {mine[:8]} 1")
    assert "There is no turn 9" in error_of(kernel, "%agent show 9")[1]


def test_failed_and_cancelled_turns_leave_their_records(start):
    kernel = start()
    kernel.ok(
        "from agent_kernel.errors import ModelRejected\nagent.session.model = ScriptedModel([ModelRejected('no such model'), ['partial words', 60]])"
    )
    assert kernel.run("%agent fails").status == "error"
    cell = kernel.send("%agent is stopped")
    cell.wait_for("partial words")
    kernel.interrupt()
    kernel.wait(cell)
    log = kernel.ok("%agent log")
    assert "fails  (failed" in log
    assert "is stopped  (cancelled" in log
    turns = kernel.ok("for row in (await agent.history.rows('SELECT status, error, partial_text FROM turns ORDER BY position')).rows: print(row)")
    assert turns == "('failed', 'no such model', '')\n('cancelled', None, 'partial words')\n"


def test_rename_delete_and_what_they_refuse(start):
    kernel = start()
    kernel.ok("%agent -m m one")
    first = session_id(kernel)
    assert f"is north ({first[:8]})" in kernel.ok("%agent rename north")
    kernel.ok("%agent -m m --new two")
    second = session_id(kernel)
    assert f"is the south ({second[:8]})" in kernel.ok("%agent rename 'the south'")
    assert "the south" in kernel.ok("%agent sessions south")
    kernel.ok("%agent rename north")
    name, shown = error_of(kernel, "%agent delete north")
    assert name == "SettingsError"
    assert first[:8] in shown
    assert second[:8] in shown
    kernel.ok("gate = ScriptedModel([['running', 60]])\nimport asyncio\nsession = agent.session\nsession.model = gate")
    kernel.ok("task = asyncio.create_task(session.run('three'))\nwhile not session.running:\n    await asyncio.sleep(0.01)")
    assert error_of(kernel, f"%agent delete {second[:8]}")[0] == "SessionBusy"
    kernel.ok("session.cancel()\nawait task")
    assert f"Deleted: north ({first[:8]}), 1 turn: one" in kernel.ok(f"%agent delete {first[:8]}")
    other = start()
    assert error_of(other, f"%agent delete {second[:8]}")[0] == "SessionBusy"
    assert "Deleted: north" in kernel.ok(f"%agent delete {second[:8]}")
    assert kernel.ok("%agent sessions") == "No session has a turn yet.\n"
    assert session_id(kernel) not in {first, second}


def test_a_session_that_another_kernel_deleted_takes_no_more_questions(start):
    first, second = start(), start()
    first.ok("%agent -m m --name doomed one")
    first.ok("%agent new")
    first.ok("%agent use doomed")
    second.ok("%agent delete doomed")
    name, shown = error_of(first, "%agent -m m two")
    assert name == "StoreError"
    assert "was deleted" in shown
    first.ok("%agent new")
    assert "answer" in first.ok("%agent -m m three")


def test_export_and_import(start, tmp_path):
    kernel = start()
    kernel.ok("@tool\ndef big() -> str:\n    return 'x' * 100_000 + 'the end'\nwork = ScriptedModel([[call('big', '1')], 'an answer'])")
    kernel.ok("%agent -m work --name demo get it")
    mine = session_id(kernel)
    for suffix in ("md", "json", "ipynb", "html"):
        path = tmp_path / f"out.{suffix}"
        assert f"Written: {path}" in kernel.ok(f"%agent export {path}")
        assert path.stat().st_size > 200
    name, shown = error_of(kernel, f"%agent export md {tmp_path / 'out.md'}")
    assert name == "StoreError"
    assert "--force" in shown
    assert "Written" in kernel.ok(f"%agent export md {tmp_path / 'out.md'} --force")
    nbformat.validate(nbformat.read(tmp_path / "out.ipynb", as_version=4))
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
    other = start(AGENT_KERNEL_HOME=str(tmp_path / "another machine"))
    assert f"Imported demo, 1 turn: %agent use {mine[:8]}" in other.ok(f"%agent import {tmp_path / 'out.json'}")
    other.ok("%agent use demo")
    assert other.ok("print(len(agent.result('r1')))") == "100007\n"
    again = other.ok(f"%agent import {tmp_path / 'out.json'}")
    assert "Imported demo" in again
    assert mine[:8] not in again
    assert len(other.ok("%agent sessions demo").splitlines()) == 2


def test_usage_and_sql(start):
    kernel = start()
    kernel.ok(
        "from agent_kernel.protocol.events import UsageDelta\nfrom agent_kernel.protocol.messages import Usage\nagent.session.model = ScriptedModel([[f'a{i}', UsageDelta(usage=Usage(input_tokens=100, output_tokens=10, cost=0.25))] for i in range(3)], name='script')"
    )
    kernel.ok("%agent one")
    kernel.ok("%agent two")
    lines = kernel.ok("%agent usage by model").splitlines()
    assert re.split(r"\s{2,}", lines[0].strip()) == ["model", "turns", "input", "output", "cached", "reasoning", "cost $"]
    assert lines[2].split() == ["script", "2", "200", "20", "0.5"]
    for by in ("", " by day", " by notebook"):
        assert "200" in kernel.ok(f"%agent usage{by}")
    assert "2" in kernel.ok("%agent sql SELECT count(*) AS turns FROM turns WHERE prompt LIKE '%o%'")
    assert kernel.ok("frame = %agent sql SELECT prompt FROM turns ORDER BY position\nprint(type(frame).__name__, list(frame['prompt']))").endswith(
        "DataFrame ['one', 'two']\n"
    )
    assert "one" in kernel.ok("print(await agent.history.sql('SELECT prompt FROM turns'))")
    for statement in ("COPY (SELECT 1) TO 'x.csv'", "DROP TABLE turn_lines", "SELECT 1; SELECT 2"):
        name, shown = error_of(kernel, f"%agent sql {statement}")
        assert name == "StoreError"
        assert "One statement that reads" in shown
    assert "arguments is JSON" in kernel.ok("%agent help sql")


def test_commands_that_read_like_prompts_send_nothing_and_show_both_ways_out(start):
    kernel = start()
    kernel.ok("agent.session.model = ScriptedModel([])")
    lines = (
        *(
            "use the second one",
            "new ideas please",
            "fork the project --at noon",
            "log in to the server",
            "rename the columns in it",
            "delete all of it",
        ),
        *("export the table", "import pandas", "usage of tokens", "sql injection is what?", "show the north now"),
    )
    for line in lines:
        name, shown = error_of(kernel, f"%agent {line}")
        assert name == "SettingsError"
        assert f"%agent -- {line}" in shown
    assert "%agent -- search for gold" in kernel.ok("%agent search for gold")
    assert "%agent -- sessions of parliament" in kernel.ok("%agent sessions of parliament")
    for line in ("use nosuch", "delete nosuch", "show nosuch"):
        shown = error_of(kernel, f"%agent {line}")[1]
        assert "There is no session 'nosuch'" in shown
        assert "%agent -- " in shown
    assert "nothing to fork" in error_of(kernel, "%agent fork")[1]
    assert "nothing to export" in error_of(kernel, "%agent export x.md")[1]


def test_the_home_is_settled_with_its_first_use(start, tmp_path):
    kernel = start()
    kernel.ok(f"%agent set home {tmp_path / 'mine'}")
    kernel.ok("%agent -m m one")
    assert (tmp_path / "mine" / "journals").is_dir()
    assert str(tmp_path / "mine") in kernel.ok("%agent status")
    assert "already" in error_of(kernel, "%agent set home elsewhere")[1]
