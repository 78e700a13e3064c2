import asyncio
import sys
from pathlib import Path

import pytest

from proxy.errors import LaunchFailed
from proxy.processes.launch import (
    LaunchPlan,
)
from proxy.processes.llama_server import start_llama_server
from tests.patience import PATIENCE_SECONDS

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


def start(program: tuple[str, ...], model: Path) -> None:
    async def run() -> None:
        async with start_llama_server(
            LaunchPlan(program, model, 1), ready_seconds=PATIENCE_SECONDS
        ):
            raise AssertionError("it must not become ready")

    asyncio.run(run())


def test_a_program_that_ends_at_once_is_quoted(model: Path) -> None:
    script = "import sys; sys.exit('error: invalid argument: -np')"
    with pytest.raises(LaunchFailed, match="did not understand an argument") as failure:
        start((sys.executable, "-c", script), model)
    assert failure.value.log == ("error: invalid argument: -np",)


def test_a_program_that_cannot_be_run_is_named(model: Path) -> None:
    with pytest.raises(LaunchFailed, match="cannot run /nowhere/llama-server: No such file"):
        start(("/nowhere/llama-server",), model)


@pytest.mark.fault("F22")
def test_a_server_that_does_not_insist_on_our_key_is_not_ours(model: Path) -> None:
    with pytest.raises(LaunchFailed, match="its key is not honoured"):
        start((sys.executable, "-c", STRANGER), model)
