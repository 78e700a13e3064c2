import asyncio
import sys
from pathlib import Path

import pytest

from proxy.errors import LaunchFailed
from proxy.processes.launch import LaunchPlan
from proxy.processes.llama_server import download, explain_exit, explain_failure, start_llama_server
from proxy.processes.start_progress import StartProgress
from tests.fakes.downloading_server import downloading_server
from tests.timeouts import TIMEOUT_SECONDS

# The server of another program, which responds with 200 to every request, even without a key.
OTHER_SERVER = """
import http.server

class Anything(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

server = http.server.HTTPServer(("127.0.0.1", 0), Anything)
print(f"listening on http://127.0.0.1:{server.server_port}", flush=True)
server.serve_forever()
"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF and more")
    return path


def start(program: tuple[str, ...], model: Path) -> None:
    async def run() -> None:
        async with start_llama_server(LaunchPlan(program, model, 1), ready_seconds=TIMEOUT_SECONDS):
            raise AssertionError("it must not become ready")

    asyncio.run(run())


def test_the_error_for_a_program_that_exits_at_once_explains_its_output(model: Path) -> None:
    script = "import sys; sys.exit('error: invalid argument: -np')"
    with pytest.raises(LaunchFailed, match="does not know an argument") as failure:
        start((sys.executable, "-c", script), model)
    assert failure.value.log == ("error: invalid argument: -np",)


def test_a_missing_program_raises_launch_failed(model: Path) -> None:
    with pytest.raises(LaunchFailed, match="cannot run /nowhere/llama-server: No such file"):
        start(("/nowhere/llama-server",), model)


@pytest.mark.fault("F22")
def test_a_server_that_accepts_requests_without_the_api_key_is_rejected(model: Path) -> None:
    with pytest.raises(LaunchFailed, match="another server answers"):
        start((sys.executable, "-c", OTHER_SERVER), model)


async def run_download(program: Path, repository: str, reports: list[StartProgress]) -> Path:
    async with asyncio.timeout(TIMEOUT_SECONDS):
        return await download((str(program),), repository, reports.append)


def test_a_download_reports_progress_and_the_path_of_the_model(tmp_path: Path) -> None:
    source = tmp_path / "source.gguf"
    source.write_bytes(b"GGUF")
    reports: list[StartProgress] = []
    program = downloading_server(tmp_path, source)
    path = asyncio.run(run_download(program, "owner/name", reports))
    assert path == tmp_path / "m.gguf"
    shares = [item.share for item in reports if item.stage == "downloading"]
    assert shares == [0.0, 0.37, 1.0]


def test_a_failed_download_raises_launch_failed(tmp_path: Path) -> None:
    program = downloading_server(tmp_path, tmp_path / "none")
    with pytest.raises(LaunchFailed, match="could not download the model"):
        asyncio.run(run_download(program, "nobody/none", []))


@pytest.mark.parametrize(
    ("line", "meaning"),
    [
        ("E srv init: couldn't bind HTTP server socket, hostname: 127.0.0.1, port: 0", "a port"),
        ("gguf_init_from_file: failed to open GGUF file 'm.gguf'", "read permission"),
        ("E gguf_init: invalid magic characters: 'garb', expected 'GGUF'", "not a GGUF file"),
        ("gguf_init_from_file_impl: failed to read magic", "empty model file"),
        ("tensor 'output.weight' data is not within the file bounds", "incomplete model file"),
        ("E gguf_init_from_reader: failed to read key-value pairs", "incomplete or damaged"),
        ("error loading model: unknown model architecture: 'new'", "update llama.cpp"),
        ("llama_init: failed to allocate buffer for kv cache", "smaller context or fewer slots"),
        ("llama_model_load: error loading model: unable to allocate CPU buffer", "smaller model"),
        ("ggml_cuda: cudaMalloc failed: out of memory", "fewer GPU layers"),
        ("init: V cache quantization requires flash_attn", "cache_type_v to f16"),
        ("quantized V cache was requested, but this requires Flash Attention", "to f16"),
        (
            "embedded llama-server: error: unrecognized arguments: -x",
            "does not support these arguments (-x)",
        ),
        ("W get_repo_files: failed to resolve commit for owner/name", "check hf_repo"),
        ("error: invalid argument: --no-webui", "an argument (--no-webui)"),
    ],
)
def test_the_error_for_a_known_line_of_output_says_what_to_do(line: str, meaning: str) -> None:
    error = explain_failure("s", ("loading model", line, "exiting"))
    assert meaning in error.problem
    assert error.is_lasting


@pytest.mark.parametrize("lines", [["one", "the dog ate it"], ["error: the dog ate it", "0x1"]])
def test_the_error_for_unknown_output_quotes_it_and_the_start_may_be_retried(
    lines: list[str],
) -> None:
    error = explain_failure("s", tuple(lines))
    assert error.problem.startswith("ended before it was ready; last output: ")
    assert error.problem.endswith("the dog ate it")
    assert not error.is_lasting


def test_the_error_for_an_exit_without_output_says_without_any_output() -> None:
    assert explain_failure("s", ()).problem == "ended before it was ready, without any output"


@pytest.mark.parametrize(
    ("exit_code", "lines", "sentence"),
    [
        (-9, ["slot 1 is busy"], "was killed (SIGKILL), by a user or because the machine ran"),
        (-9, ["cudaMalloc failed: out of memory"], "ran out of memory: use a smaller context"),
        (-6, ["GGML_ASSERT(n > 0) failed", "#1 0x77"], "crashed (SIGABRT); last output: GGML"),
        (1, ["goodbye"], "crashed (exit code 1); last output: goodbye"),
        (0, [], "crashed (exit code 0)"),
        (-250, [], "crashed (signal 250)"),
        (-6, ["out of memory, trying less", *["fine"] * 20], "crashed (SIGABRT); last output"),
    ],
)
def test_explain_exit_names_the_signal_or_exit_code_and_the_likely_cause(
    exit_code: int, lines: list[str], sentence: str
) -> None:
    assert explain_exit(exit_code, lines).startswith(sentence)
