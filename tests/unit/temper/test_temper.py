"""The public names of the package."""

import ast
import shutil
import subprocess
import sys
from pathlib import Path
from typing import assert_type, get_origin, get_type_hints

import pytest

import proxy
import temper
from proxy import Agent

PUBLIC = {
    *("Agent", "Model", "Hooks", "Limits", "RunResult", "RunStream", "Usage", "Conversation"),
    *("RunEvent", "Text", "Thought", "AskedAgain", "ToolStarted", "ToolFinished", "Added"),
    *("Finished", "Stop", "Round", "Outcome", "Status", "Workflow", "Prerequisite"),
    *("tool", "Toolset", "FunctionTool", "ToolContext", "Executor", "ToolFailed", "ToolRetry"),
    *("TemperError", "InvalidConfiguration", "InvalidRequest", "ContextOverflow"),
    *("BackendFailed", "Compacted", "RunStopped", "RoundsExhausted", "ToolsFailed", "StepsSkipped"),
    *("Checked", "ErrorTracker", "ReplyValidator", "StepEnforcer"),
    *("Guardrails", "GuardedTurn", "GuardedAnswer", "GuardrailsExhausted"),
    *("LocalServer", "local_server", "ToolCall"),
    *("NoValidReply", "RunCancelled", "Progress", "ProcessFailed", "CallDelta", "Message"),
    *("BackendUnavailable", "BackendTimedOut", "BackendRefused", "BackendReplyInvalid"),
    *("detect_hardware", "respond_tool"),
    "BackendSpokeNonsense",  # the name of BackendReplyInvalid until 0.2.0
}


def test_the_public_names_of_the_package_are_exactly_this_list() -> None:
    assert set(temper.__all__) == PUBLIC
    assert set(dir(temper)) >= PUBLIC
    for name in PUBLIC:
        assert getattr(temper, name) is not None


def test_the_package_proxy_has_the_same_public_names() -> None:
    assert set(dir(proxy)) >= PUBLIC
    for name in PUBLIC:
        assert getattr(proxy, name) is getattr(temper, name)


def test_a_private_name_raises_attribute_error() -> None:
    for package in (proxy, temper):
        with pytest.raises(AttributeError, match="'Turn'"):
            _ = package.Turn


def test_the_imports_for_type_checkers_list_the_same_names() -> None:
    tree = ast.parse(Path(temper.__file__).read_text())
    seen = {
        alias.name: node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("proxy.")
        for alias in node.names
    }
    assert set(seen) == PUBLIC
    for name, home in seen.items():
        assert getattr(sys.modules[home], name) is getattr(temper, name)


@pytest.mark.parametrize(("package", "other"), [("temper", "proxy"), ("proxy", "temper")])
def test_importing_a_package_imports_no_submodule(package: str, other: str) -> None:
    program = (
        f"import {package}, sys; print([name for name in sys.modules"
        f" if name.startswith(('{package}.', '{other}'))])"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert ran.stdout.strip() == "[]"


def test_the_declared_result_type_of_agent_run_is_run_result() -> None:
    async def program(agent: temper.Agent, same: Agent) -> None:  # read by mypy, never run
        assert_type(await agent.run("Hello."), temper.RunResult)
        assert_type(await same.run("Hello."), temper.RunResult)

    assert program.__annotations__["agent"] is program.__annotations__["same"]
    assert get_origin(get_type_hints(temper.Agent.run)["return"]) is temper.RunResult


def test_the_command_temper_fails_if_the_package_proxy_is_of_another_distribution(
    tmp_path: Path,
) -> None:
    (tmp_path / "proxy").mkdir()
    (tmp_path / "proxy/__init__.py").touch()
    shutil.copytree(Path(temper.__file__).parent, tmp_path / "temper")
    command = [sys.executable, "-m", "temper", "--version"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    assert ran.stderr.startswith(
        "temper: the installed package `proxy` belongs to another distribution"
    )
    assert len(ran.stderr.splitlines()) == 1
