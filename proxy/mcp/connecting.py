"""A connection to one tool server: a program that is started, or an address.

Knows the SDK of MCP and nothing of restarts: whoever entered the connection leaves it, in the same
task. A program dies with us and keeps none of our secrets: its environment is the SDK's short list
and what the operator gave it.
"""

import asyncio
import os
import ssl
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import BinaryIO, TypeAlias

import httpx2
import mcp_types
from anyio.abc import ObjectReceiveStream
from mcp import Client, StdioServerParameters
from mcp.client._transport import ReadStream, TransportStreams  # what transports are made of
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage

from proxy.mcp.specification import ServerSpec
from proxy.processes import parent_death
from proxy.processes.process import LogTail

_CONNECT_SECONDS = 10.0
_SILENCE_SECONDS = 300.0  # between two events of an answer; calls have limits of their own
_CHUNK = 65536
_LONGEST_EVENT = 4 * 2**20  # bytes of one message that is streamed
_MOST_PAGES = 100

OnLost: TypeAlias = Callable[[], None]
OnClose: TypeAlias = Callable[[], None]
_Received: TypeAlias = SessionMessage | Exception


@asynccontextmanager
async def connect(
    spec: ServerSpec, tail: LogTail, on_lost: OnLost, on_close: OnClose = lambda: None
) -> AsyncGenerator[Client, None]:
    """Connect to a server and agree on a protocol.

    The last lines of a program's standard error go to `tail`, of an address what it refuses.
    `on_lost` is called when nothing more comes from a program; of an address, a broken connection
    ends the block with an `ExceptionGroup`. `on_close` is called before a program is closed, also
    where there was no agreement: whoever cancelled that would leave it running, and wait for it.
    """
    is_address = spec.url is not None
    transport = _address(spec, tail) if is_address else _program(spec, tail, on_lost, on_close)
    us = mcp_types.Implementation(name="temper", version=_own_version())
    # nothing is listed or read twice, so there is nothing to keep
    async with Client(transport, mode="auto", client_info=us, cache=None) as client:
        yield client


async def list_tools(client: Client) -> tuple[mcp_types.Tool, ...]:
    found: list[mcp_types.Tool] = []
    cursor: str | None = None
    for _ in range(_MOST_PAGES):
        page = await client.list_tools(cursor=cursor)
        found += page.tools
        cursor = page.next_cursor
        if not cursor:
            break
    return tuple(found)


@asynccontextmanager
async def _address(spec: ServerSpec, tail: LogTail) -> AsyncGenerator[TransportStreams, None]:
    url = spec.url or ""

    async def note(answer: httpx2.Response) -> None:
        """Keep what the SDK tells nobody: with which status it was turned away."""
        if answer.is_error and answer.status_code != HTTPStatus.METHOD_NOT_ALLOWED:
            tail.feed(f"HTTP {answer.status_code} {answer.reason_phrase}\n".encode())

    client = httpx2.AsyncClient(
        headers=dict(spec.headers),
        timeout=httpx2.Timeout(_CONNECT_SECONDS, read=_SILENCE_SECONDS),
        verify=await _certificates(url),
        trust_env=False,
        event_hooks={"response": [note]},
    )
    speaking = streamable_http_client(url, http_client=client, max_sse_event_size=_LONGEST_EVENT)
    async with client, speaking as streams:
        yield streams


async def _certificates(url: str) -> ssl.SSLContext:
    """Load the usual certificates where there is use for them; that takes a tenth of a second."""
    if url.startswith("https"):
        return await asyncio.to_thread(ssl.create_default_context)
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


@asynccontextmanager
async def _program(
    spec: ServerSpec, tail: LogTail, on_lost: OnLost, on_close: OnClose
) -> AsyncGenerator[TransportStreams, None]:
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb", buffering=0) as source, os.fdopen(writing, "w") as errors:
        listening = asyncio.create_task(_listen(source, tail))
        try:
            async with stdio_client(_parameters(spec), errlog=errors) as (received, sent):
                errors.close()  # the program has its own
                try:
                    yield _Watched(received, on_lost), sent
                finally:
                    on_close()
        finally:
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)


def _parameters(spec: ServerSpec) -> StdioServerParameters:
    """Return how to start a program so that it dies with us, where the kernel sees to that.

    Elsewhere the end of its standard input, which every server heeds, has to do: the watcher that
    `parent_death` would leave behind reads there itself.
    """
    command = spec.command
    if sys.platform == "linux":
        own = (sys.executable, "-P", "-S", str(Path(parent_death.__file__)), str(os.getpid()))
        command = (*own, *command)
    return StdioServerParameters(
        command=command[0], args=[*command[1:]], env=dict(spec.env), cwd=spec.cwd or None
    )


async def _listen(source: BinaryIO, tail: LogTail) -> None:
    """Read what a program writes to its standard error, so that it never waits for us."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=_CHUNK)
    transport, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), source
    )
    try:
        while chunk := await reader.read(_CHUNK):
            tail.feed(chunk)
        tail.finish()
    finally:
        transport.close()


class _Watched(ObjectReceiveStream[_Received]):
    """What comes from a program; tells when that is over."""

    def __init__(self, received: ReadStream[_Received], on_lost: OnLost) -> None:
        self._received = received
        self._on_lost = on_lost

    async def receive(self) -> _Received:
        return await self._received.receive()

    async def aclose(self) -> None:
        await self._received.aclose()
        self._on_lost()


def _own_version() -> str:
    try:
        return version("temper-proxy")
    except PackageNotFoundError:
        return "0"
