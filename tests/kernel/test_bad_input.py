"""What goes wrong in a notebook: wrong key, no server, huge prompts, a folder that is none, broken settings; nothing is lost."""

from __future__ import annotations

import http.server
import json
import threading

import pytest


@pytest.fixture
def server():
    """A model server that refuses every key; ``asked`` counts its requests."""
    asked = []

    class Refusing(http.server.BaseHTTPRequestHandler):
        def _answer(self, status, body):
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def do_GET(self):
            self._answer(200, {"object": "list", "data": [{"id": "the-first", "object": "model"}, {"id": "the-second", "object": "model"}]})

        def do_POST(self):
            asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self._answer(401, {"error": {"message": "Incorrect API key provided", "code": "invalid_api_key"}})

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Refusing)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    server.asked = asked
    yield server
    server.shutdown()
    thread.join(5)
    server.server_close()


def test_a_wrong_key_is_one_request_and_one_clear_line(start_kernel, server):
    key = "sk-wrong-0123456789abcdef"
    kernel = start_kernel(env={"OPENAI_BASE_URL": f"http://127.0.0.1:{server.server_port}/v1", "OPENAI_API_KEY": key})
    cell = kernel.run("%agent hello")
    name, shown = cell.error
    assert name == "ModelRejected"
    assert len(shown) == 2
    assert "%agent retry" in shown[1]
    assert len(server.asked) == 1
    assert server.asked[0]["model"] == "the-first"
    assert key not in json.dumps([cell.outputs, cell.reply])
    assert kernel.ok("print(agent.session.pending_prompt)") == "hello\n"
    assert kernel.run("%agent -m the-second hello").error[0] == "ModelRejected"
    assert server.asked[1]["model"] == "the-second"
    assert "offline" in kernel.ok("%agent -m offline hello")
    assert kernel.ok("print(agent.session.model.name)") == "the-first\n"


def test_no_server_is_said_in_one_line(start_kernel):
    kernel = start_kernel(env={"AGENT_KERNEL_BASE_URL": "http://127.0.0.1:9/v1", "AGENT_KERNEL_MODEL": "any"})
    kernel.ok("agent.session.model.max_retries = 0")
    name, shown = kernel.run("%agent hello").error
    assert name == "ModelConnectionError"
    assert len(shown) == 2
    assert "127.0.0.1:9" in shown[0]


def test_a_prompt_of_ten_megabytes_arrives(kernel):
    kernel.ok("agent.session.model = m = ScriptedModel(['read it'])")
    kernel.ok("%%agent\n" + "0123456789" * 1_000_000)
    assert kernel.ok("print(len(m.requests[0].messages[-1].text))") == "10000000\n"


def test_an_artifacts_folder_that_is_a_file_does_not_end_the_turn(start_kernel, tmp_path):
    blocker = tmp_path / "file"
    blocker.write_text("in the way")
    kernel = start_kernel(env={"AGENT_KERNEL_HOME": str(blocker)})
    kernel.ok(
        "from agent_kernel import ScriptedModel, tool\nfrom agent_kernel.protocol.messages import ToolCall\n@tool\ndef big() -> str:\n    return 'x' * 1_000_000"
    )
    kernel.ok("agent.session.model = m = ScriptedModel([[ToolCall(id='1', name='big')], 'still here'])")
    assert "still here" in kernel.ok("%agent go")
    told = kernel.ok("print(m.requests[1].messages[-1].text)")
    assert len(told) < 40_000
    assert "truncated" in told


def test_broken_settings_are_said_at_the_turn_and_not_at_load(start_kernel, tmp_path):
    settings = tmp_path / "settings.toml"
    settings.write_text("max_round = 3")
    kernel = start_kernel(env={"AGENT_KERNEL_SETTINGS": str(settings)})
    name, shown = kernel.run("%agent hello").error
    assert name == "SettingsError"
    assert "max_rounds" in shown[0]
    assert str(settings) in shown[0]
