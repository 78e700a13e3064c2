import asyncio
import sys
from pathlib import Path

import pytest

from proxy.errors import LaunchFailed
from proxy.processes.llama_server import (
    LaunchPlan,
    check_model_file,
    choose_program,
    embedded_program,
    find_program,
    sampling_flags,
    start_llama_server,
)
from proxy.profiles.profile import Sampling

# A stranger's server: healthy, and content with any key or none.
STRANGER = """
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


@pytest.mark.parametrize(
    ("plan", "size", "end"),
    [
        (LaunchPlan(("s",), Path("m"), 4096), "-np 1 -c 4096", "--metrics"),
        (LaunchPlan(("s",), Path("m"), 4096, slots=3), "-np 3 -c 12288", "--metrics"),
        (LaunchPlan(("s",), Path("m"), 1, alias="qwen"), "-np 1 -c 1", "--metrics -a qwen"),
        (LaunchPlan(("s",), Path("m"), 1, extra=("-fa", "on")), "-np 1 -c 1", "--metrics -fa on"),
    ],
)
def test_slots_context_and_address_are_always_explicit(
    plan: LaunchPlan, size: str, end: str
) -> None:
    expected = f"s -m m {size} --host 127.0.0.1 --port 0 --jinja --no-webui --slots {end}"
    assert " ".join(plan.command()) == expected


def test_published_sampling_becomes_the_servers_default() -> None:
    published = Sampling(temperature=0.6, top_p=0.95, top_k=20, min_p=0, source="https://e.org")
    assert " ".join(sampling_flags(published)) == "--temp 0.6 --top-p 0.95 --top-k 20 --min-p 0"
    assert sampling_flags(Sampling()) == ()


def test_a_server_on_path_is_preferred() -> None:
    assert choose_program("/bin/llama-server", has_embedded=True) == ("/bin/llama-server",)


def test_the_embedded_server_is_the_second_choice() -> None:
    assert choose_program(None, has_embedded=True) == embedded_program()


def test_without_any_server_the_remedy_is_named() -> None:
    with pytest.raises(LaunchFailed, match=r"no llama-server on PATH .* 'temper-proxy\[embedded"):
        choose_program(None, has_embedded=False)


def test_the_program_is_looked_for_on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "llama-server"
    program.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_program() == (str(program),)


def test_a_file_that_begins_like_a_model_may_be_tried(model: Path) -> None:
    check_model_file(model)


def test_a_file_that_cannot_be_a_model_is_refused_before_anything_starts(tmp_path: Path) -> None:
    (tmp_path / "text.gguf").write_text("hello")
    for path, problem in (
        (tmp_path / "nowhere.gguf", "does not exist"),
        (tmp_path, "is a folder"),
        (tmp_path / "text.gguf", "is not a GGUF file"),
        (tmp_path / ("long" * 100), "cannot be read"),
    ):
        with pytest.raises(LaunchFailed, match=problem):
            check_model_file(path)


def start(program: tuple[str, ...], model: Path) -> None:
    async def run() -> None:
        async with start_llama_server(LaunchPlan(program, model, 1), ready_seconds=30):
            raise AssertionError("it must not become ready")

    asyncio.run(run())


def test_a_program_that_ends_at_once_is_quoted(model: Path) -> None:
    script = "import sys; sys.exit('error: invalid argument: -np')"
    with pytest.raises(LaunchFailed, match="did not understand one of its arguments") as failure:
        start((sys.executable, "-c", script), model)
    assert failure.value.log == ("error: invalid argument: -np",)


def test_a_program_that_cannot_be_run_is_named(model: Path) -> None:
    with pytest.raises(LaunchFailed, match="cannot run /nowhere/llama-server: No such file"):
        start(("/nowhere/llama-server",), model)


def test_a_server_that_does_not_insist_on_our_key_is_not_ours(model: Path) -> None:
    with pytest.raises(LaunchFailed, match="its key is not honoured"):
        start((sys.executable, "-c", STRANGER), model)
