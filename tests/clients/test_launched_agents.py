"""`temper launch` with real agents, from an empty home directory: each completes a task.

Programs that are not on the PATH are skipped. `.ci/run` has the versions.
"""

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.test_coding_agents import QUIET, TASK, needs
from tests.fakes.quick_start import COMMAND
from tests.fakes.tool_loops import CODE_ANSWER, CODE_GENERATIONS, CODE_WORD, Served, right_backend
from tests.timeouts import TIMEOUT_SECONDS

CLAUDE_CODE = (
    *("-p", TASK.format("Bash"), "--max-turns", "12"),
    *("--allowedTools", "Bash", "--strict-mcp-config"),
)
CODEX = (
    *("exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"),
    *("-c", "check_for_update_on_startup=false", TASK.format("exec_command")),
)
OPENCODE = ("run", TASK.format("bash"))


@pytest.fixture
def backend() -> Iterator[Served]:
    with right_backend() as served:
        yield served


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """An empty home directory, with a folder to work in."""
    work = tmp_path / "work"
    work.mkdir()
    (work / "secret.txt").write_text(f"{CODE_WORD}\n", encoding="utf-8")
    return tmp_path


def launch(agent: str, home: Path, backend: Served, arguments: tuple[str, ...]) -> str:
    """Run an agent by `temper launch` and return its output; it has no terminal."""
    url = backend.url.removesuffix("/v1")
    inherited = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    environment = {"HOME": str(home), **inherited, **QUIET}
    with subprocess.Popen(
        [*COMMAND, "launch", agent, "--backend-url", url, "--", *arguments],
        cwd=home / "work",
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            output, errors = process.communicate(timeout=TIMEOUT_SECONDS)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 0, output + errors
    return output


@pytest.mark.parametrize(
    ("agent", "arguments"),
    [
        pytest.param("claude-code", CLAUDE_CODE, marks=needs("claude")),
        pytest.param("codex", CODEX, marks=needs("codex")),
    ],
    ids=["claude-code", "codex"],
)
def test_an_agent_completes_a_task_from_an_empty_home_directory(
    agent: str, arguments: tuple[str, ...], home: Path, backend: Served
) -> None:
    assert CODE_ANSWER in launch(agent, home, backend, arguments)
    assert backend.generations() == CODE_GENERATIONS
