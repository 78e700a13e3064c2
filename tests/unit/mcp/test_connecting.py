import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Coroutine
from pathlib import Path

import pytest
from mcp import MCPError

from proxy.mcp.connecting import connect, list_tools
from proxy.mcp.specification import ServerSpec
from proxy.processes.process import LogTail
from tests.fakes.tool_server_over_http import SECRET, tool_server_over_http
from tests.fakes.tool_servers import program
from tests.patience import PATIENCE_SECONDS

REPOSITORY = Path(__file__).parents[3]

# Keeps a program that heeds neither the end of its input nor SIGTERM.
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


def run(work: Coroutine[None, None, None]) -> None:
    async def with_patience() -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await work

    asyncio.run(with_patience())


def test_a_server_over_http_gets_its_headers_and_lists_its_tools() -> None:
    async def work() -> None:
        async with tool_server_over_http() as server:
            spec = ServerSpec("adder", server.url, {"authorization": SECRET})
            async with connect(spec, LogTail(), lambda: None) as client:
                names = [one.name for one in await list_tools(client)]
                assert names == ["add", "wait", "big"]
                result = await client.call_tool("add", {"a": 1, "b": 2})
                assert result.structured_content == {"result": 3}

    run(work())


def test_a_server_over_http_turns_away_who_has_no_key() -> None:
    async def work() -> None:
        async with tool_server_over_http() as server:
            told = LogTail()
            with pytest.raises((MCPError, ExceptionGroup)):
                async with connect(ServerSpec("adder", server.url), told, lambda: None):
                    pass
            assert told.lines[-1] == "HTTP 401 Unauthorized"

    run(work())


def test_the_end_of_a_program_is_told() -> None:
    async def work() -> None:
        lost = asyncio.Event()
        async with connect(program(), LogTail(), lost.set) as client:
            with pytest.raises(MCPError, match="Connection closed"):
                await client.call_tool("die", {})
            await lost.wait()

    run(work())


def test_an_address_with_encryption_is_checked_against_the_usual_certificates() -> None:
    async def work() -> None:
        with pytest.raises((MCPError, ExceptionGroup)):
            async with connect(ServerSpec("x", "https://127.0.0.1:1/"), LogTail(), lambda: None):
                pass

    run(work())


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the end of its input has to do")
@pytest.mark.fault("F71")
def test_a_stubborn_program_dies_with_us_even_by_kill_9() -> None:
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    with subprocess.Popen(
        (sys.executable, "-c", HOST), stdout=subprocess.PIPE, text=True, env=environment
    ) as host:
        assert host.stdout is not None
        pid = int(host.stdout.readline())
        host.send_signal(signal.SIGKILL)
        host.wait()
    patience = time.monotonic() + PATIENCE_SECONDS
    while is_alive(pid):
        assert time.monotonic() < patience
        time.sleep(0.01)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
