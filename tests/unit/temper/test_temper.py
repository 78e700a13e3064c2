"""The names by which programs use Temper."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import temper

PUBLIC = {
    *("Agent", "Model", "Hooks", "Limits", "RunResult", "RunStream", "Usage", "Conversation"),
    *("RunEvent", "Text", "Thought", "AskedAgain", "ToolStarted", "ToolFinished", "Added"),
    *("Finished", "Stop", "Round", "Outcome", "Status", "Workflow", "Prerequisite"),
    *("tool", "Toolset", "FunctionTool", "ToolContext", "Executor", "ToolFailed", "ToolRetry"),
    *("TemperError", "InvalidConfiguration", "InvalidRequest", "ContextOverflow"),
    *("BackendFailed", "RunStopped", "RoundsExhausted", "ToolsFailed", "StepsSkipped"),
    *("Guardrails", "GuardedTurn", "GuardedAnswer", "GuardrailsExhausted"),
    *("LocalServer", "local_server", "ToolCall"),
    *("NoValidReply", "RunCancelled"),
}


def test_programs_import_these_names_and_no_others() -> None:
    assert set(temper.__all__) == PUBLIC
    assert set(dir(temper)) >= PUBLIC
    for name in PUBLIC:
        assert getattr(temper, name) is not None


def test_a_name_that_is_not_public_is_no_attribute() -> None:
    with pytest.raises(AttributeError, match="'Turn'"):
        _ = temper.Turn  # type: ignore[attr-defined]


def test_type_checkers_see_the_same_names_in_the_same_places() -> None:
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


def test_to_import_it_imports_nothing_else_of_it() -> None:
    program = "import temper, sys; print([one for one in sys.modules if one[:5] == 'proxy'])"
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert ran.stdout.strip() == "[]"


def test_programs_are_checked_against_its_types(tmp_path: Path) -> None:
    typing = pytest.importorskip("mypy.api")
    program = tmp_path / "program.py"
    program.write_text(
        "from temper import Agent\nfrom proxy import Agent as Same\n"
        "from temper import Turn\nreveal_type(Agent.run)\nreveal_type(Same.run)\n"
    )
    said, _, _ = typing.run(["--strict", "--follow-imports=silent", str(program)])
    assert 'Module "temper" has no attribute "Turn"' in said
    assert said.count("RunResult") == 2
