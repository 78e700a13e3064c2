"""Claude Code and Codex themselves, headless: they run a command and tell what it printed.

They are no Python packages: `npm install @anthropic-ai/claude-code @openai/codex` puts them on the
PATH. The versions that are known to pass stand in `.ci/run`.
"""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from proxy.conversation import json
from tests.fakes.tool_loops import (
    AGENT_TOKENS,
    CODE_ANSWER,
    CODE_GENERATIONS,
    CODE_WORD,
    MODEL,
    Served,
    before_leaking_llama_server,
    before_mock,
)
from tests.patience import PATIENCE_SECONDS

TASK = "Run `cat secret.txt` in your shell and tell me the code word that it prints. [[by {}]]"
# nobody is told what is done here, and nothing is updated
QUIET = {
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_AUTOUPDATER": "1",
    "DISABLE_ERROR_REPORTING": "1",
    "DISABLE_TELEMETRY": "1",
    "IS_SANDBOX": "1",
    "NO_PROXY": "127.0.0.1",
}


@pytest.fixture(scope="module", params=["mock", "leaking llama-server"])
def running(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    """Temper in front of a model that does right, and of one whose calls are text."""
    folder = tmp_path_factory.mktemp("agents")
    backend = before_mock() if request.param == "mock" else before_leaking_llama_server(folder)
    with backend as served:
        yield served


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where an agent works; the code word stands in a file."""
    work = tmp_path / "work"
    work.mkdir()
    (work / "secret.txt").write_text(f"{CODE_WORD}\n", encoding="utf-8")
    return work


def needs(program: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(
        shutil.which(program) is None, reason=f"needs {program} on the PATH, see .ci/run"
    )


def run(command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> str:
    """Run an agent to its end, and end with it whatever it has started."""
    surroundings = {"PATH": os.environ["PATH"], "HOME": str(folder.parent), **QUIET, **environment}
    with subprocess.Popen(
        command,
        cwd=folder,
        env=surroundings,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as agent:
        try:
            told, complaints = agent.communicate(timeout=PATIENCE_SECONDS)
        finally:
            if agent.poll() is None:
                os.killpg(agent.pid, signal.SIGKILL)
    assert agent.returncode == 0, told + complaints
    return told


@needs("claude")
def test_claude_code_runs_a_command_and_answers(served: Served, folder: Path) -> None:
    names = ("MODEL", "DEFAULT_HAIKU_MODEL", "DEFAULT_SONNET_MODEL", "DEFAULT_OPUS_MODEL")
    environment = {
        "ANTHROPIC_BASE_URL": served.url.removesuffix("/v1"),
        "ANTHROPIC_AUTH_TOKEN": "none",
        "CLAUDE_CODE_ATTRIBUTION_HEADER": "0",
        "CLAUDE_CODE_GATEWAY_HINT_HEADERS": "1",
        "CLAUDE_CODE_MAX_CONTEXT_TOKENS": f"{AGENT_TOKENS}",
        **{f"ANTHROPIC_{name}": MODEL for name in names},
    }
    headless = ("-p", TASK.format("Bash"), "--output-format", "json", "--max-turns", "6")
    allowed = ("--allowedTools", "Bash", "--strict-mcp-config")
    told = json.parse(run(["claude", *headless, *allowed], folder, environment).encode())
    assert isinstance(told, dict)
    assert (told["result"], told["is_error"]) == (CODE_ANSWER, False)
    assert served.generations() == CODE_GENERATIONS
    assert (served.rescued_calls > 0) is served.leaks


@needs("codex")
def test_codex_runs_a_command_and_answers(served: Served, folder: Path) -> None:
    provider = f'{{name="Temper", base_url="{served.url}", wire_api="responses"}}'
    settings = {
        "model": MODEL,
        "model_provider": "temper",
        "model_context_window": f"{AGENT_TOKENS}",
        "model_providers.temper": provider,
        "check_for_update_on_startup": "false",
        "analytics.enabled": "false",
    }
    given = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
    answer = folder.parent / "answer.txt"
    unwatched = ("--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox")
    headless = ("exec", "--json", *unwatched, "-o", str(answer), TASK.format("exec_command"))
    run(["codex", *given, *headless], folder, {"CODEX_HOME": str(folder.parent)})
    assert answer.read_text(encoding="utf-8").strip() == CODE_ANSWER
    assert served.generations() == CODE_GENERATIONS
    assert (served.rescued_calls > 0) is served.leaks
