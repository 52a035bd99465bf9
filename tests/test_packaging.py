"""What is built and installed: the wheel's files, the kernelspec, the versions."""

import json
import os
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

from jupyter_client import KernelManager
from jupyter_client.kernelspec import KernelSpecManager

import agent_kernel

ROOT = Path(__file__).parents[1]


def test_the_wheel_holds_the_package_and_the_kernelspec_and_no_tests(tmp_path):
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--disable-pip-version-check", "-w", str(tmp_path), str(ROOT)]
    subprocess.run(command, check=True, timeout=110)
    [wheel] = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert f"-{agent_kernel.__version__}-" in wheel.name
    assert "agent_kernel/py.typed" in names
    assert any(name.endswith("data/share/jupyter/kernels/agent/kernel.json") for name in names)
    assert {path.relative_to(ROOT).as_posix() for path in (ROOT / "agent_kernel").rglob("*.py")} <= set(names)
    assert not [name for name in names if name.startswith(("tests", "notebooks"))]


def test_the_installed_kernelspec_loads_the_extension_by_itself(tmp_path):
    spec = KernelSpecManager(kernel_dirs=[str(Path(sys.prefix) / "share/jupyter/kernels")]).get_kernel_spec("agent")
    assert spec.argv == json.loads((ROOT / "jupyter-config/kernels/agent/kernel.json").read_text())["argv"]
    manager = KernelManager()
    manager._kernel_spec = spec  # the one of this environment, whatever else the machine has under that name
    manager.start_kernel(env={**os.environ, "AGENT_KERNEL_SETTINGS": str(tmp_path / "none.toml"), "AGENT_KERNEL_HOME": str(tmp_path / "home")})
    client = manager.client()
    try:
        client.start_channels()
        client.wait_for_ready(timeout=60)
        shown = []
        reply = client.execute_interactive("%agent status", timeout=60, output_hook=lambda message: shown.append(message["content"].get("text", "")))
        assert reply["content"]["status"] == "ok"
        assert "offline" in "".join(shown)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def test_every_runtime_dependency_has_its_reason():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    table = (ROOT / "ARCHITECTURE.md").read_text().split("### Dependencies")[1].split("##")[0]
    for dependency in project["dependencies"]:
        assert dependency.split(">")[0].split("[")[0] in table, dependency
