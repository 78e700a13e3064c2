"""Tool servers of other authors: two from npm, and one made with FastMCP.

`npm install @modelcontextprotocol/server-everything @modelcontextprotocol/server-filesystem` puts
the first two on the PATH, the extra `tool-servers` installs FastMCP. `.ci/run` lists the versions
that are known to pass.
"""

import asyncio
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from benchmarks.load.processes import free_port
from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.mcp.fleet import open_fleet
from proxy.mcp.hosting import ToolHosting
from proxy.mcp.lazy import LazyToolServers
from proxy.mcp.specification import ServerSpec
from proxy.settings import Settings
from tests.fakes.running_proxy import RunningProxy, temper
from tests.fakes.sse import calls, says
from tests.timeouts import TIMEOUT_SECONDS

EVERYTHING, FILES = "mcp-server-everything", "mcp-server-filesystem"
THANKS = says("Thank you.")
PROGRAM = str(Path(__file__).parents[1] / "fakes" / "fastmcp_server.py")
SECRET = "Bearer canary"


def needs(program: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(
        shutil.which(program) is None, reason=f"needs {program} on the PATH, see .ci/run"
    )


FASTMCP = pytest.mark.skipif(
    importlib.util.find_spec("fastmcp") is None, reason="needs the extra `tool-servers`"
)


@asynccontextmanager
async def with_temper(
    server: dict[str, object], *scripts: bytes
) -> AsyncGenerator[tuple[RunningProxy, ToolHosting], None]:
    """Run Temper with one tool server, and wait until the tools are listed."""
    settings = Settings.model_validate({"mcp": {"theirs": {"tools": ["*"], **server}}})
    async with asyncio.timeout(TIMEOUT_SECONDS), aclosing(LazyToolServers()) as tools:
        hosting = tools.apply(settings)
        assert hosting is not None
        while hosting.offer.source.tools_of("theirs") is None:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.05)
        async with temper(*scripts, tools=hosting) as proxy:
            yield proxy, hosting


@contextmanager
def running(*command: str, **environment: str) -> Iterator[None]:
    """Run a server without output while the block runs."""
    with subprocess.Popen(
        command,
        env={**os.environ, **environment},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            yield
        finally:
            process.kill()


async def results(proxy: RunningProxy, count: int) -> list[str]:
    """Send `count` requests, and return the tool results that the model received."""
    asks: JsonObject = {
        "model": "m",
        "messages": [{"role": "user", "content": "Hi"}],
        "tools": [{"type": "mcp", "server_label": "theirs"}],
    }
    read: list[str] = []
    for _ in range(count):
        answer = await proxy.ask(asks)
        assert (answer.text, answer.report["tools"]) == ("Thank you.", "theirs=1")
        messages = map(json.parse, proxy.backend.upstream_requests[-1].messages)
        results = [
            message
            for message in messages
            if isinstance(message, dict) and message["role"] == "tool"
        ]
        read.append(str(results[-1]["content"]))
    return read


async def try_everything(server: dict[str, object]) -> None:
    questions = (
        ("echo", '{"message": "hi"}'),
        ("get-sum", '{"a": 2, "b": 3}'),
        ("get-tiny-image", "{}"),
        ("get-structured-content", '{"location": "Chicago"}'),
        ("get-resource-links", '{"count": 1}'),
    )
    scripts = [script for call in questions for script in (calls(*call), THANKS)]
    async with with_temper(server, *scripts) as (proxy, hosting):
        echo, added, picture, structured, links = await results(proxy, len(questions))
        assert hosting.offer.source.protocol_of("theirs")[1] == "2025-11-25"
    assert echo == "Echo: hi"
    assert "5" in added
    assert "[image: image/png, " in picture
    assert json.parse(structured)
    assert "[link: " in links


@needs(EVERYTHING)
async def test_the_mcp_server_named_everything_works_over_pipes() -> None:
    await try_everything({"command": [EVERYTHING]})


@needs(EVERYTHING)
async def test_the_mcp_server_named_everything_works_over_http() -> None:
    port = free_port()
    with running(EVERYTHING, "streamableHttp", PORT=f"{port}"):
        await try_everything({"url": f"http://127.0.0.1:{port}/mcp"})


@needs(FILES)
async def test_the_mcp_server_named_filesystem_reads_a_file_only_inside_its_folder(
    tmp_path: Path,
) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    inside.mkdir()
    (inside / "note.txt").write_text("It is noon.")
    outside.write_text("secret")
    reads = [
        calls("f_read_text_file", json.dump_text({"path": str(path)}))
        for path in (inside / "note.txt", outside)
    ]
    server: dict[str, object] = {
        "command": [FILES, str(inside)],
        "tools": ["read_text_file"],
        "prefix": "f_",
    }
    async with with_temper(server, reads[0], THANKS, reads[1], THANKS) as (proxy, hosting):
        allowed, refused = await results(proxy, 2)
        offered = hosting.offer.source.tools_of("theirs") or ()
        assert [tool.tool.name for tool in offered] == ["f_read_text_file"]
    assert allowed == "It is noon."
    assert refused.startswith("Error: ")
    assert "secret" not in refused


@FASTMCP
async def test_tools_of_a_fastmcp_server_that_requires_a_header_are_called() -> None:
    port = free_port()
    scripts = (
        *(calls("add", '{"a": 2, "b": 3}'), THANKS),
        *(calls("fail", "{}"), THANKS),
        *(calls("big", "{}"), THANKS),
    )
    server: dict[str, object] = {
        "url": f"http://127.0.0.1:{port}/mcp",
        "headers": {"authorization": SECRET},
    }
    with running(sys.executable, "-P", PROGRAM, f"{port}"):
        async with with_temper(server, *scripts) as (proxy, hosting):
            added, failed, big = await results(proxy, 3)
            assert hosting.offer.source.protocol_of("theirs") == ("tcp", "2026-07-28")
    assert (added, failed) == ("5", "Error: it is broken")
    assert "characters is left out" in big


@FASTMCP
async def test_a_fastmcp_server_rejects_requests_without_its_header() -> None:
    port = free_port()
    spec = ServerSpec("theirs", f"http://127.0.0.1:{port}/mcp", tools=("*",))
    with running(sys.executable, "-P", PROGRAM, f"{port}"):
        async with asyncio.timeout(TIMEOUT_SECONDS), open_fleet((spec,)) as fleet:
            (server,) = fleet.servers
            while "401" not in server.problem:  # noqa: ASYNC110 - at first nobody listens there
                await asyncio.sleep(0.05)
            assert server.tools is None
