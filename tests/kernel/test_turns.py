"""Turns in cells of a real kernel: text and results as they come, values, errors, re-runs, commands."""

from __future__ import annotations


def test_first_text_shows_soon_after_the_first_delta(kernel):
    kernel.ok("import sys\ngate = asyncio.Event()\nagent.session.model = ScriptedModel([[TextDelta(text='first words'), 0.5, ' and the rest']])")
    cell = kernel.run("%%agent\nhello")
    assert cell.status == "ok"
    first, last = cell.when("first words"), cell.when("and the rest")
    print(f"first text after {first * 1000:.0f} ms")
    assert last - first > 0.3
    assert first < 0.4 * 4


def test_a_fast_tools_result_shows_while_a_slow_one_runs(kernel):
    kernel.ok("""
@tool
def fast() -> str:
    time.sleep(0.1)
    return "fast result"
@tool
def slow() -> str:
    time.sleep(2)
    return "slow result"
agent.session.model = ScriptedModel([[call("slow", "1"), call("fast", "2")], "done"])
""")
    cell = kernel.run("%agent both, please")
    assert cell.status == "ok"
    fast, slow = cell.when("fast result"), cell.when("slow result")
    print(f"results after {fast:.2f} s and {slow:.2f} s")
    assert fast < 0.1 * 4 + 1
    assert slow >= 2


def test_a_used_call_is_the_turns_state_and_a_statement_shows_nothing(kernel):
    kernel.ok("agent.session.model = ScriptedModel(['one', 'two', 'three', 'four', 'five', 'six', 'seven'])")
    cell = kernel.run("%agent what is this?")
    assert "execute_result" not in cell.kinds()
    cell = kernel.run("%%agent\nwhat is this?")
    assert "execute_result" not in cell.kinds()
    assert kernel.ok("x = %agent what is this?\nprint(type(x).__name__, x.status, x.prompt)").endswith("TurnState completed what is this?\n")
    cell = kernel.run("def f():\n    x = %agent in a function\n    return x.text\nf()")
    assert cell.text.endswith("'four'")
    cell = kernel.run("%%time\n%agent in a timed cell")
    assert cell.status == "ok"
    assert "execute_result" not in cell.kinds()
    assert "Wall time" in cell.text
    cell = kernel.run("%%capture kept\n%agent captured")
    assert cell.text == ""
    assert kernel.ok("print(kept.outputs[-1].data['text/plain'])") == "six\n"
    assert kernel.ok("get_ipython().run_cell_magic('agent', '', 'by hand')").strip().endswith("seven")


def test_prompts_arrive_byte_for_byte(kernel):
    prompts = ["what is this?", "a $x {y} '\" \\", "# first\n\n  second \\", "emoji 😀 ?", ">>> 1\n... 2", "trailing  "]
    kernel.ok(
        "x = y = 5\nclass Echo:\n    name = 'echo'\n    async def stream(self, request):\n        yield TextDelta(text=ascii(request.messages[-1].text))\nagent.session.model = Echo()"
    )
    for prompt in prompts:
        assert ascii(prompt) in kernel.ok(f"%%agent\n{prompt}")
        if "\n" not in prompt:
            assert kernel.ok(f"state = %agent {prompt}\nprint('kept', ascii(state.prompt))").endswith(f"kept {prompt!a}\n")


def test_help_shows_for_nothing_and_sends_nothing(kernel):
    kernel.ok("agent.session.model = ScriptedModel([])")
    for cell in ("%agent", "%%agent", "%%agent\n", "%%agent\n   \n", "%agent --help", "%agent help", "%%agent -h\nhello"):
        text = kernel.ok(cell)
        assert "--max-rounds" in text
        assert "%agent retry" in text
    assert "close_names" not in kernel.ok("%agent help set")


def test_an_error_is_short_keeps_the_prompt_and_stops_run_all(kernel):
    kernel.ok(
        "from agent_kernel.errors import ModelRejected\nagent.session.model = ScriptedModel([ModelRejected('The key was refused. Set another.'), 'better'])"
    )
    first, second, third = kernel.send("%agent hello"), kernel.send("print('next')"), kernel.send("print('last')")
    for cell in (first, second, third):
        kernel.wait(cell)
    name, shown = first.error
    assert name == "ModelRejected"
    assert len(shown) <= 2
    assert shown[0] == "ModelRejected: The key was refused. Set another."
    assert "%agent retry" in shown[1]
    assert second.status == third.status == "aborted"
    assert kernel.ok("print(agent.session.pending_prompt)") == "hello\n"
    assert "better" in kernel.ok("%agent retry")
    cell = kernel.run("%agent retry")
    assert cell.error[0] == "NothingToRetry"
    assert len(cell.error[1]) == 1


def test_commands(kernel):
    kernel.ok(
        "agent.session.model = ScriptedModel(['hello to you', 'again'], name='script')\n@tool\ndef revenue(region: str) -> int:\n    'Revenue of a region.'\n    return 1"
    )
    kernel.ok("%agent hi there")
    status = kernel.ok("%agent status")
    for word in ("script", "revenue", "turns    1, the last one completed"):
        assert word in status
    assert "Revenue of a region." in kernel.ok("%agent tools")
    assert "user: hi there\nassistant: hello to you" in kernel.ok("%agent show")
    assert "max_rounds is 32 (default)" in kernel.ok("%agent set max_rounds")
    assert "max_rounds is 5 in this kernel" in kernel.ok("%agent set max_rounds 5")
    assert "max_rounds is 5 (%agent set)" in kernel.ok("%agent set max_rounds")
    listed = kernel.ok("%agent set")
    assert "max_parallel_tools" in listed
    assert listed.splitlines()[-1].endswith(".toml")
    assert "script" in kernel.ok("%agent model")
    assert "offline" in kernel.ok("%agent model offline")
    assert "offline" in kernel.ok("print(agent)")


def test_a_command_with_other_arguments_sends_nothing_and_shows_both_ways_out(kernel):
    kernel.ok("agent.session.model = ScriptedModel(['as a prompt'])")
    for line in ("show me the north", "retry the sum", "status of the order?", "help me", "set the table for two", "use this one"):
        cell = kernel.run(f"%agent {line}")
        name, shown = cell.error
        assert name == "SettingsError"
        assert f"%agent -- {line}" in "\n".join(shown)
    assert "as a prompt" in kernel.ok("%agent -- show me the north")
    assert "user: show me the north" in kernel.ok("%agent show")


def test_wrong_options_and_settings_name_close_ones(kernel):
    for line, hint in (
        ("%agent --modle x hi", "--model"),
        ("%agent set max_round 3", "max_rounds"),
        ("%agent -t nosuch hi", "nosuch"),
        ("%agent set max_rounds 0", "1 to 1,000"),
    ):
        name, shown = kernel.run(line).error
        assert name == "SettingsError"
        assert hint in shown[0]
    assert "no turn yet" in kernel.ok("%agent show")


def test_new_named_and_used_sessions(kernel):
    kernel.ok("m = ScriptedModel([f'answer {i}' for i in range(9)])\nagent.session.model = m")
    kernel.ok("%agent -m m one")
    kernel.ok("first = agent.session")
    kernel.ok("%agent -m m --name other two")
    assert kernel.ok("print(agent.session is first, agent.session.name)") == "False other\n"
    kernel.ok("other = agent.session")
    kernel.ok("%agent -m m --new three")
    assert kernel.ok("print(agent.session is other, len(agent.session.messages))") == "False 3\n"
    kernel.ok("%agent use other")
    assert kernel.ok("print(agent.session is other)") == "True\n"
    listed = kernel.ok("%agent sessions").splitlines()
    assert len(listed) == 3
    assert ["*" in line for line in listed] == ["other" in line for line in listed]
    kernel.ok("%agent -m m --name other four")
    assert kernel.ok("print(agent.session is other, len(m.requests[-1].messages))") == "True 4\n"
    assert "nosuch" in kernel.run("%agent use nosuch").error[1][0]


def test_a_refused_turn_leaves_the_current_session(kernel):
    kernel.ok("agent.session.model = ScriptedModel(['hello'])")
    kernel.ok("%agent hi")
    kernel.ok("first = agent.session")
    for refused in ("%agent --new -t nosuch hi", "%agent --name other -t nosuch hi"):
        assert kernel.run(refused).error[0] == "SettingsError"
        assert kernel.ok("print(agent.session is first)") == "True\n"


def test_a_retry_takes_options(kernel):
    kernel.ok("good = ScriptedModel(['better'], name='good')\nagent.session.model = ScriptedModel([OSError('gone'), 'bare'], name='bad')")
    assert kernel.run("%agent hi").error[0] == "AgentKernelError"
    kernel.ok("%agent -m good retry")
    assert kernel.ok("print([m.text for m in agent.session.messages[1:]], agent.session.model.name)") == "['hi', 'better'] bad\n"
    kernel.ok("%agent --quiet -- retry")
    assert kernel.ok("print([m.text for m in agent.session.messages[-2:]])") == "['retry', 'bare']\n"


def test_tools_on_offer_follow_the_namespace(kernel):
    kernel.ok(
        "m = ScriptedModel(['ok'] * 9)\nagent.session.model = m\ndef offer():\n    return [spec.name + ':' + spec.description for spec in m.requests[-1].tools]"
    )
    kernel.ok(
        "@tool\ndef a() -> int:\n    'first'\n    return 1\n@tool\ndef b() -> int:\n    'b'\n    return 2\n_hidden = tool(lambda: 1, name='hidden', description='x')"
    )
    kernel.ok("%agent hi")
    assert kernel.ok("print(offer())") == "['a:first', 'b:b']\n"
    kernel.ok("old = a\n@tool\ndef a() -> int:\n    'second'\n    return 1\ndel b")
    kernel.ok("%agent hi")
    assert kernel.ok("print(offer())") == "['a:second']\n"
    kernel.ok("%agent -t none hi")
    assert kernel.ok("print(offer())") == "[]\n"


def test_rerunning_a_cell_replaces_its_turn_while_it_is_the_last(kernel):
    kernel.ok(
        "agent.session.model = ScriptedModel([f'answer {i}' for i in range(9)])\ndef said():\n    return [m.text for m in agent.session.messages[1:]]"
    )
    kernel.ok("%agent one", cell_id="A")
    kernel.ok("%agent one", cell_id="A")
    assert kernel.ok("print(said())") == "['one', 'answer 1']\n"
    kernel.ok("for q in ('x', 'y'):\n    get_ipython().run_line_magic('agent', q)", cell_id="B")
    assert kernel.ok("print(said())") == "['one', 'answer 1', 'x', 'answer 2', 'y', 'answer 3']\n"
    kernel.ok("for q in ('x', 'y'):\n    get_ipython().run_line_magic('agent', q)", cell_id="B")
    assert kernel.ok("print(said())") == "['one', 'answer 1', 'x', 'answer 4', 'y', 'answer 5']\n"
    assert "Added as a new turn" in kernel.ok("%agent one", cell_id="A")
    assert kernel.ok("print(len(said()))") == "8\n"
    assert "Added as a new turn" not in kernel.ok("%agent one")
    assert kernel.ok("print(len(said()))") == "10\n"


def test_quiet_shows_the_answer_alone(kernel):
    kernel.ok("@tool\ndef t() -> str:\n    return 'result'\nagent.session.model = ScriptedModel([['looking', call('t', '1')], 'the answer'])")
    assert kernel.ok("%agent --quiet hi") == "the answer"


def test_output_of_work_stays_with_its_cell(kernel):
    kernel.ok("""
@tool
def talk() -> str:
    time.sleep(0.5)
    print("from the tool")
    return "ok"
@tool(runs_on="main")
def main_talk() -> str:
    print("from the main thread")
    return threading.current_thread().name
agent.session.model = ScriptedModel([[call("talk", "1"), call("main_talk", "2")], "done"])
task = asyncio.create_task(agent.session.run("in the background"))
""")
    kernel.ok("print('another cell'); _ = await asyncio.wait([task])")
    cells = list(kernel.cells.values())
    assert "from the tool" in cells[-2].text
    assert cells[-1].text == "another cell\n"
    assert "from the main thread" in cells[-2].text
    assert kernel.ok("print([entry.result.text for entry in (await task).tool_calls])") == "['ok', 'MainThread']\n"


def test_a_large_result_is_read_back_by_its_handle(kernel):
    kernel.ok("@tool\ndef big() -> str:\n    return 'x' * 1_000_000 + 'end'\nagent.session.model = ScriptedModel([[call('big', '1')], 'done'])")
    kernel.ok("%agent get it")
    handle = kernel.ok("print(agent.session.messages[-2].artifact.handle)").strip()
    assert kernel.ok(f"value = agent.result({handle!r})\nprint(len(value), value[-3:])") == "1000003 end\n"
    assert "more characters" in kernel.ok(f"%agent show {handle}")
    cell = kernel.run("%agent show r99")
    assert cell.error[0] == "ArtifactNotFound"
    assert len(cell.error[1]) == 1
