import asyncio
import contextlib
import gzip
import json
import os
import signal
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path

import pytest
from mcp import MCPError

from proxy import bounds
from proxy.bounds import KIB, MIB
from proxy.mcp.connecting import Allowance, connect, has_too_many_values, list_tools
from proxy.mcp.specification import ServerSpec
from proxy.processes.process import LogTail
from tests.fakes.loopback import own_address
from tests.fakes.tool_server_over_http import SECRET, tool_server_over_http
from tests.fakes.tool_servers import program
from tests.timeouts import TIMEOUT_SECONDS

REPOSITORY = Path(__file__).parents[3]

# A process that starts a program which ignores SIGTERM and the end of its input.
HOST = """
import asyncio
from proxy.processes.process import LogTail
from proxy.mcp.connecting import connect
from tests.fakes.tool_servers import program

async def main():
    async with connect(program("stubborn"), LogTail(), print) as client:
        result = await client.call_tool("pid", {})
        print(result.content[0].text, flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


async def test_tools_of_an_http_server_are_listed_and_called_with_the_configured_headers() -> None:
    async with tool_server_over_http() as server:
        spec = ServerSpec("adder", server.url, {"authorization": SECRET})
        async with connect(spec, LogTail(), lambda _: None) as client:
            names = [tool.name for tool in await list_tools(client)]
            assert names == ["add", "wait", "big"]
            result = await client.call_tool("add", {"a": 1, "b": 2})
            assert result.structured_content == {"result": 3}


async def test_the_status_of_an_http_server_that_refuses_the_client_is_logged() -> None:
    async with tool_server_over_http() as server:
        log = LogTail()
        with pytest.raises((MCPError, ExceptionGroup)):
            async with connect(ServerSpec("adder", server.url), log, lambda _: None):
                pass
        assert log.lines[-1] == "HTTP 401 Unauthorized"


JSON = "content-type: application/json"
PIECE = b" " * 2**20


@pytest.mark.fault("F64")
@pytest.mark.parametrize(
    ("head", "piece", "times", "problem"),
    [
        (JSON, b"[1," * 60_000, 1, "more than 50000 values"),
        (JSON, PIECE, 1000, "more than 16777216 bytes"),
        ("content-type: text/event-stream", b"data: " + PIECE, 1000, "SSE stream failed"),
        (
            f"{JSON}\r\ncontent-encoding: gzip",
            gzip.compress(PIECE),
            1000,
            "compresses its responses",
        ),
        (f"{JSON}\r\ncontent-encoding: br", PIECE, 1000, "compresses its responses"),
    ],
    ids=["values", "json", "events", "gzip", "br"],
)
async def test_an_oversized_or_compressed_response_is_refused_without_reading_all_of_it(
    head: str, piece: bytes, times: int, problem: str
) -> None:
    sent = 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        request = await reader.readuntil(b"\r\n\r\n")
        assert b"accept-encoding: identity" in request.lower()
        writer.write(f"HTTP/1.1 200 OK\r\n{head}\r\n\r\n".encode())
        with contextlib.suppress(OSError):
            for _ in range(times):
                writer.write(piece)
                sent += len(piece)
                await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, own_address(), 0) as server:
        url = "http://{}:{}/mcp".format(*server.sockets[0].getsockname())
        with pytest.raises((MCPError, ExceptionGroup)) as refused:
            async with connect(ServerSpec("x", url), LogTail(), lambda _: None):
                pass
        assert problem in repr(refused.value)
    assert sent < 64 * 2**20  # including data buffered in the kernel


@pytest.mark.fault("F86")
@pytest.mark.parametrize(
    ("document", "is_many"),
    [
        (json.dumps({"a": "1,2,[3]{}\n" * 100_000}), False),
        (json.dumps({"a": '"x\\",' * 100_000}), False),
        (json.dumps([1] * 40_000 + ["a,[", "\\"]), False),
        (json.dumps([1] * 60_000), True),
        (json.dumps([[]] * 30_000), True),
        (json.dumps({str(number): number for number in range(60_000)}), True),
        ("[" * 60_000, True),
    ],
)
def test_commas_and_brackets_in_strings_are_not_counted_as_values(
    document: str, *, is_many: bool
) -> None:
    assert has_too_many_values(document.encode()) is is_many


async def test_if_the_program_exits_the_running_call_fails_and_on_lost_is_called() -> None:
    lost = asyncio.Event()
    async with connect(program(), LogTail(), lambda _: lost.set()) as client:
        with pytest.raises(MCPError, match="Connection closed"):
            await client.call_tool("die", {})
        await lost.wait()


@pytest.mark.fault("F68")
async def test_messages_that_answer_no_request_use_less_than_four_mebibytes() -> None:
    tracemalloc.start()
    try:
        async with connect(program("chatter"), LogTail(), print) as client:
            before, _ = tracemalloc.get_traced_memory()
            await client.call_tool("echo", {"text": "hi"})
            _, peak = tracemalloc.get_traced_memory()
            assert peak - before < 4 * MIB
    finally:
        tracemalloc.stop()


@pytest.mark.fault("F68")
def test_the_allowance_for_messages_that_answer_no_request_recovers_with_time() -> None:
    now = 0.0
    events: list[str] = []
    allowance = Allowance(events.append, clock=lambda: now)
    assert allowance.covers(bounds.UNASKED - 1, KIB)
    assert not allowance.covers(1, 0)
    now = 1.0
    assert allowance.covers(bounds.UNASKED_A_SECOND - 1, 0)
    assert not allowance.covers(1, 0)
    now = 1e9
    assert allowance.covers(bounds.UNASKED, 0)
    assert not allowance.covers(0, 1)
    assert len(events) == 3


async def test_connecting_to_an_unreachable_https_address_raises_an_error() -> None:
    with pytest.raises((MCPError, ExceptionGroup)):
        async with connect(ServerSpec("x", "https://127.0.0.1:1/"), LogTail(), lambda _: None):
            pass


@pytest.mark.skipif(
    sys.platform != "linux", reason="other systems have no signal for the end of the parent"
)
@pytest.mark.fault("F71")
def test_a_program_that_ignores_sigterm_is_killed_when_temper_is_killed() -> None:
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    with subprocess.Popen(
        (sys.executable, "-c", HOST), stdout=subprocess.PIPE, text=True, env=environment
    ) as host:
        assert host.stdout is not None
        pid = int(host.stdout.readline())
        host.send_signal(signal.SIGKILL)
        host.wait()
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while is_alive(pid):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
