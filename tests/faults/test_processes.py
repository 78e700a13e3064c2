"""F01, F20, F25 with a supervised server, and F77; `tests/acceptance` uses real servers."""

import asyncio
import os
import subprocess
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from proxy.api.app import ServerOptions
from proxy.api.streaming import StreamTimeouts
from proxy.backends.client import Description
from proxy.backends.llama_server import LlamaServer
from proxy.backends.transport import BackendClient
from proxy.conversation import json
from proxy.processes.managed import ManagedBackend
from proxy.processes.process import ServerAddress
from proxy.processes.restarts import RestartState
from proxy.processes.supervisor import RemoteStatus, ServerStatus
from tests.fakes.quick_start import COMMAND, Program
from tests.fakes.running_proxy import in_front_of
from tests.fakes.scripted_backend import ScriptedBackend
from tests.fakes.sockets import connected, listening
from tests.fakes.sse import says
from tests.faults.proxies import PLAIN
from tests.timeouts import TIMEOUT_SECONDS

AT_ONCE = 0.05
RESTARTING = ServerStatus(RestartState.WAITING, reason="it was killed (SIGKILL)", retry_after=2.5)
DOWN = ServerStatus(RestartState.DOWN, reason="it was killed (SIGKILL)")


def managed_backend(status: ServerStatus) -> tuple[RemoteStatus, ManagedBackend]:
    """Return the backend of a managed server with a scripted status."""
    server = RemoteStatus("llama-server/m")
    server.note(status)

    def connect(address: ServerAddress) -> LlamaServer:
        return LlamaServer(BackendClient(address.base_url, address.api_key))

    return server, ManagedBackend(server, Description(("m",)), connect, load_wait=30.0)


@pytest.mark.fault("F01")
@pytest.mark.fault("F20")
async def test_requests_get_503_with_retry_after_while_a_crashed_server_restarts(
    *, stream: bool
) -> None:
    _, engine = managed_backend(RESTARTING)
    impatient = ServerOptions(timeouts=StreamTimeouts(load_wait=0.0))
    async with in_front_of(engine, impatient, ScriptedBackend()) as proxy:
        took, clock = [], asyncio.get_running_loop().time
        for _ in range(5):
            begun = clock()
            answer = await proxy.ask(PLAIN, stream=stream)
            took.append(clock() - begun)
            assert (answer.status, answer.headers["retry-after"]) == (503, "3")
            assert answer.error is not None
            assert answer.error["code"] == "backend_unavailable"
    assert min(took) < AT_ONCE


@pytest.mark.fault("F20")
async def test_a_request_to_a_server_that_stays_down_gets_503_with_the_reason(
    *, stream: bool
) -> None:
    _, engine = managed_backend(DOWN)
    async with in_front_of(engine, None, ScriptedBackend()) as proxy:
        answer = await proxy.ask(PLAIN, stream=stream)
    assert (answer.status, answer.headers["x-should-retry"]) == (503, "false")
    assert answer.error is not None
    assert "SIGKILL" in str(answer.error["message"])


@pytest.mark.fault("F25")
async def test_a_request_waits_while_its_stopped_server_is_started(*, stream: bool) -> None:
    async with listening(backend := ScriptedBackend(says("It is sunny."))) as upstream:
        server, engine = managed_backend(ServerStatus(RestartState.STARTING))
        async with in_front_of(engine, None, backend) as proxy:
            asking = asyncio.create_task(proxy.ask(PLAIN, stream=stream))
            health = await proxy.client.get("/health")
            server.note(
                ServerStatus(RestartState.READY, address=ServerAddress(upstream.url, "key"))
            )
            answer = await asking
    assert health.status_code == 503
    assert (answer.text, answer.reason) == ("It is sunny.", "stop")


@pytest.mark.fault("F25")
async def test_a_request_that_waits_too_long_for_a_start_gets_the_error_model_loading(
    *, stream: bool
) -> None:
    _, engine = managed_backend(ServerStatus(RestartState.STARTING))
    impatient = ServerOptions(timeouts=StreamTimeouts(load_wait=0.02))
    async with in_front_of(engine, impatient, ScriptedBackend()) as proxy:
        answer = await proxy.ask(PLAIN, stream=stream)
    assert (answer.status, answer.headers["retry-after"]) == (503, "5")
    assert answer.error is not None
    assert answer.error["code"] == "model_loading"


@pytest.mark.deep
@pytest.mark.skipif(os.name == "nt", reason="Windows has no such limit")
@pytest.mark.fault("F77")
async def test_fewer_connections_are_accepted_if_the_limit_of_open_files_is_low(
    tmp_path: Path,
) -> None:
    serve = [*COMMAND, "serve", "--port", "0", "--json", "--backend-url", "http://127.0.0.1:1"]
    limited = ["sh", "-c", 'ulimit -n 64; exec "$@"', "sh", *serve]
    log = tmp_path / "log"
    with (
        log.open("wb") as complaints,
        Program(limited, stdout=subprocess.PIPE, stderr=complaints) as process,
    ):
        assert process.stdout is not None
        announced = json.parse(process.stdout.readline())
        assert isinstance(announced, dict)
        host, _, port = str(announced["url"]).removeprefix("http://").partition(":")
        statuses = []
        async with AsyncExitStack() as stack:
            for _ in range(80):
                reader, writer = await stack.enter_async_context(connected((host, int(port))))
                writer.write(b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
                statuses.append((await reader.readline())[9:12])
            await asyncio.sleep(1.5)  # Temper warms up half a second after its start
        process.terminate()
        assert process.wait(TIMEOUT_SECONDS) == 0
    assert statuses == [b"200"] * 32 + [b"503"] * 48
    text = log.read_text(encoding="utf-8")
    assert "Traceback" not in text
    assert text.count("Only 64 files may be open") == 1
