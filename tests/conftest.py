"""What several folders of tests share: the model server, and an environment without a real one."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    """Run browser tests last: while a browser is driven, this thread's event loop is taken and no other test could run one."""
    items.sort(key=lambda item: TESTS / "browser" in item.path.parents)


@pytest.fixture(scope="session")
def provider_module():
    """tests/provider.py, loaded by its path: the tests are no package."""
    spec = importlib.util.spec_from_file_location("agent_kernel_test_provider", TESTS / "provider.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def cases(provider_module):
    """The recorded dialects by name."""
    return provider_module.load_cases(TESTS / "data" / "streams.jsonl")


@pytest.fixture
def provider(provider_module, cases):
    """A real HTTP server on 127.0.0.1."""
    with provider_module.Provider(cases) as server:
        yield server


@pytest.fixture(autouse=True)
def no_real_model(monkeypatch):
    """No test asks a real server or depends on an environment that a shell has activated: what the variables say of them is hidden."""
    for name in ("VIRTUAL_ENV", "OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(autouse=True)
def no_real_home(monkeypatch, tmp_path_factory):
    """No test touches the history of whoever runs it."""
    monkeypatch.setenv("AGENT_KERNEL_HOME", str(tmp_path_factory.mktemp("agent-home")))
    monkeypatch.delenv("JPY_SESSION_NAME", raising=False)
