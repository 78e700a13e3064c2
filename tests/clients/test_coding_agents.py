"""Claude Code and Codex without a terminal: they run a command and report its output.

They are not Python packages: `npm install @anthropic-ai/claude-code @openai/codex` puts them on the
PATH. `.ci/run` lists the versions that are known to pass.
"""

import os
import shutil
import signal
import struct
import subprocess
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from proxy.conversation import json
from proxy.conversation.json import JsonObject
from tests.fakes.tool_loops import (
    AGENT_TOKENS,
    BLIND_ANSWER,
    CODE_ANSWER,
    CODE_GENERATIONS,
    CODE_WORD,
    LONG_FILES,
    MODEL,
    PDF_ANSWER,
    PDF_FILE,
    PICTURE_FILE,
    SIGHT_ANSWER,
    Served,
    temper_with_leaking_llama_server,
    temper_with_mock,
)
from tests.timeouts import TIMEOUT_SECONDS

TASK = "Run `cat secret.txt` in your shell and tell me the code word that it prints. [[by {}]]"
# no telemetry, and no updates
QUIET = {
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_AUTOUPDATER": "1",
    "DISABLE_ERROR_REPORTING": "1",
    "DISABLE_TELEMETRY": "1",
    "IS_SANDBOX": "1",
    "NO_PROXY": "127.0.0.1",
}

# By default, Codex waits 300 s for the next event of a stream. Here it waits 2.5 s, which is less
# than the silence of the model (`SILENCE`).
PATIENCE_MS = 2_500
# The first request has 12,000 tokens, and each file 5,000.
SMALL_WINDOW, LINES = 24_000, 900
SILENCE, SIGN_OF_LIFE = 6.0, 0.3  # seconds
PDF = (
    b"%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj\n"
    b"2 0 obj<</Type/Pages/Kids[3 0 R]/Count 1>>endobj\n"
    b"3 0 obj<</Type/Page/MediaBox[0 0 99 99]/Parent 2 0 R>>endobj\ntrailer<</Root 1 0 R>>\n%%EOF\n"
)


def red_picture() -> bytes:
    """Return a PNG image of 8 x 8 red pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        checked = kind + data
        return struct.pack(">I", len(data)) + checked + struct.pack(">I", zlib.crc32(checked))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", 8, 8, 8, 2, 0, 0, 0))
    points = chunk(b"IDAT", zlib.compress((b"\0" + b"\xff\0\0" * 8) * 8))
    return b"\x89PNG\r\n\x1a\n" + head + points + chunk(b"IEND", b"")


@pytest.fixture(scope="module", params=["mock", "leaking llama-server"])
def running(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    """Temper in front of a mock without errors, or of a llama-server that leaks calls as text."""
    folder = tmp_path_factory.mktemp("agents")
    backend = (
        temper_with_mock() if request.param == "mock" else temper_with_leaking_llama_server(folder)
    )
    with backend as served:
        yield served


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The working directory of an agent; a file contains the code word."""
    work = tmp_path / "work"
    work.mkdir()
    (work / "secret.txt").write_text(f"{CODE_WORD}\n", encoding="utf-8")
    return work


def needs(program: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(
        shutil.which(program) is None, reason=f"needs {program} on the PATH, see .ci/run"
    )


def run(command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> str:
    """Run an agent and return its output; kill it if it exceeds the time limit.

    The processes that it started are killed as well.
    """
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
            output, complaints = agent.communicate(timeout=TIMEOUT_SECONDS)
        finally:
            if agent.poll() is None:
                os.killpg(agent.pid, signal.SIGKILL)
    assert agent.returncode == 0, output + complaints
    return output


def ask_claude_code(served: Served, folder: Path, prompt: str) -> JsonObject:
    """Run Claude Code with a prompt; return its JSON report."""
    names = ("MODEL", "DEFAULT_HAIKU_MODEL", "DEFAULT_SONNET_MODEL", "DEFAULT_OPUS_MODEL")
    environment = {
        "ANTHROPIC_BASE_URL": served.url.removesuffix("/v1"),
        "ANTHROPIC_AUTH_TOKEN": "none",
        "CLAUDE_CODE_ATTRIBUTION_HEADER": "0",
        "CLAUDE_CODE_GATEWAY_HINT_HEADERS": "1",
        "CLAUDE_CODE_MAX_CONTEXT_TOKENS": f"{AGENT_TOKENS}",
        **{f"ANTHROPIC_{name}": MODEL for name in names},
    }
    headless = ("-p", prompt, "--output-format", "json", "--max-turns", "12")
    allowed = ("--allowedTools", "Agent,Bash,Read", "--strict-mcp-config")
    result = json.parse(run(["claude", *headless, *allowed], folder, environment).encode())
    assert isinstance(result, dict)
    return result


@needs("claude")
def test_claude_code_runs_a_command_and_answers(served: Served, folder: Path) -> None:
    result = ask_claude_code(served, folder, TASK.format("Bash"))
    assert (result["result"], result["is_error"]) == (CODE_ANSWER, False)
    assert served.generations() == CODE_GENERATIONS
    assert (served.rescued_calls > 0) is served.leaks


def ask_codex(served: Served, folder: Path, prompt: str, provided: str = "") -> str:
    """Run Codex with a prompt; `provided` is TOML with further settings of the provider."""
    provider = f'{{name="Temper", base_url="{served.url}", wire_api="responses"{provided}}}'
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
    headless = ("exec", "--json", *unwatched, "-o", str(answer), prompt)
    run(["codex", *given, *headless], folder, {"CODEX_HOME": str(folder.parent)})
    return answer.read_text(encoding="utf-8").strip()


@needs("codex")
def test_codex_runs_a_command_and_answers(served: Served, folder: Path) -> None:
    assert ask_codex(served, folder, TASK.format("exec_command")) == CODE_ANSWER
    assert served.generations() == CODE_GENERATIONS
    assert (served.rescued_calls > 0) is served.leaks


@pytest.fixture(scope="module")
def healthy() -> Iterator[Served]:
    """Temper in front of a model that makes no mistakes and accepts images."""
    with temper_with_mock() as served:
        yield served


@needs("claude")
def test_claude_code_gets_the_answer_of_its_subagent(healthy: Served, folder: Path) -> None:
    before = healthy.generations()
    result = ask_claude_code(healthy, folder, "Have a subagent read the code word. [[by Agent]]")
    assert (result["result"], result["is_error"]) == (CODE_ANSWER, False)
    assert healthy.generations() - before == 4  # agent and subagent: one call and one answer each


@needs("claude")
def test_an_image_that_claude_code_reads_reaches_a_vision_model(
    healthy: Served, folder: Path
) -> None:
    (folder / PICTURE_FILE).write_bytes(red_picture())
    result = ask_claude_code(healthy, folder, "What is on the picture? [[picture]]")
    assert (result["result"], result["is_error"]) == (SIGHT_ANSWER, False)


@needs("claude")
def test_claude_code_continues_after_an_image_that_the_model_does_not_accept(folder: Path) -> None:
    (folder / PICTURE_FILE).write_bytes(red_picture())
    with temper_with_mock(rejects_images=True) as served:
        result = ask_claude_code(served, folder, "What is on the picture? [[picture]]")
        assert (result["result"], result["is_error"]) == (BLIND_ANSWER, False)
        assert served.generations() == 2


@needs("claude")
def test_claude_code_answers_after_a_pdf_that_the_model_cannot_read(
    healthy: Served, folder: Path
) -> None:
    (folder / PDF_FILE).write_bytes(PDF)
    before = healthy.generations()
    result = ask_claude_code(healthy, folder, "What does it say? [[paper]]")
    assert (result["result"], result["is_error"]) == (PDF_ANSWER, False)
    assert healthy.generations() - before == 2


@pytest.fixture
def silent() -> Iterator[Served]:
    """Temper in front of a model that is silent for longer than Codex waits."""
    with temper_with_mock(
        silence=SILENCE, TEMPER_SERVER__KEEP_ALIVE_SECONDS=f"{SIGN_OF_LIFE}"
    ) as served:
        yield served


@needs("codex")
def test_codex_waits_through_a_long_silence_of_the_engine(silent: Served, folder: Path) -> None:
    watched = f", stream_idle_timeout_ms={PATIENCE_MS}"
    assert ask_codex(silent, folder, "Take your time. [[in silence]]", watched) == CODE_ANSWER
    assert silent.generations() == 1


@pytest.fixture
def small() -> Iterator[Served]:
    """Temper in front of a model with a window too small for the files that the agents read."""
    with temper_with_mock(window=SMALL_WINDOW, TEMPER_CONTEXT__RECENT_GROUPS="1") as served:
        yield served


def write_long_files(folder: Path, tool: str) -> None:
    """Write long files: each ends with a reference to the next file, the last with the code."""
    for number in range(LONG_FILES):
        is_last = number == LONG_FILES - 1
        end = CODE_WORD if is_last else f"[[{tool} file {number + 1}]]"
        lines = "".join(f"{number}: line {line} of many\n" for line in range(LINES))
        (folder / f"long{number}.txt").write_text(f"{lines}{end}\n", encoding="utf-8")


@needs("claude")
def test_claude_code_answers_although_its_files_exceed_the_window(
    small: Served, folder: Path
) -> None:
    write_long_files(folder, "Bash")
    result = ask_claude_code(small, folder, "Read the files. [[Bash file 0]]")
    assert (result["result"], result["is_error"]) == (CODE_ANSWER, False)
    assert small.refusals() > 0


@needs("codex")
def test_codex_answers_although_its_files_exceed_the_window(small: Served, folder: Path) -> None:
    write_long_files(folder, "exec_command")
    prompt = "Read the files. [[exec_command file 0]]"
    assert ask_codex(small, folder, prompt) == CODE_ANSWER
    assert small.refusals() > 0
