"""A connection to one tool server: a program that is started, or an address.

Knows the SDK of MCP and nothing of restarts: whoever entered the connection leaves it, in the same
task. A program dies with us and keeps none of our secrets: its environment is the SDK's short list
and what the operator gave it.
"""

import asyncio
import re
import ssl
import sys
import time
from asyncio.subprocess import Process, SubprocessStreamProtocol
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from importlib.metadata import PackageNotFoundError, version
from math import inf
from typing import TypeAlias

import anyio
import httpx2
import mcp_types as types
import msgspec
from anyio.abc import ObjectReceiveStream
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp import Client
from mcp.client._transport import ReadStream, TransportStreams  # what transports are made of
from mcp.client.stdio import get_default_environment
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage

from proxy import bounds, systems
from proxy.dialects.lines import LineDecoder
from proxy.mcp.specification import ServerSpec
from proxy.processes import parent_death
from proxy.processes.process import LogTail

_CONNECT_SECONDS = 10.0
_SILENCE_SECONDS = 300.0  # between two events of an answer; calls have limits of their own
_CHUNK = 65536
_GRACE_SECONDS = 2.0  # after each way of asking a program to end
_GLANCE_SECONDS = 0.01
_TOO_MANY_VALUES = f"it answered with more than {bounds.VALUES} values"
_BEFORE_VALUES = (b",", b"[", b"{")
_END_OF_EVENT = re.compile(rb"\n\n|\r\n\r\n|\r\r")

_ASKED = bounds.UNASKED + bounds.ANSWER_BYTES / bounds.KIB  # with an answer among it
_FLOOD = f"wrote more than {bounds.UNASKED:,} messages, or as many KiB, that nobody asked for"

Notify: TypeAlias = Callable[[], None]
# Takes what a server did that ended its connection, "" where it has just ended.
Lose: TypeAlias = Callable[[str], None]
_Message: TypeAlias = SessionMessage | Exception


@asynccontextmanager
async def connect(
    spec: ServerSpec, tail: LogTail, on_lost: Lose, on_close: Notify = lambda: None
) -> AsyncGenerator[Client, None]:
    """Connect to a server and agree on a protocol.

    The last lines of a program's standard error go to `tail`, of an address what it refuses.
    `on_lost` is called when nothing more comes from a program, and when a server floods us: then
    the block has to be left. Otherwise a broken connection to an address ends the block with an
    `ExceptionGroup`. `on_close` is called before a program is closed, also where there was no
    agreement: whoever cancelled that would leave it running, and wait for it.
    """
    if spec.url is not None:
        transport = _address(spec, tail, on_lost)
    else:
        transport = _program(spec, tail, on_lost, on_close)
    own_version = "0"
    with suppress(PackageNotFoundError):
        own_version = version("temper-proxy")
    us = types.Implementation(name="temper", version=own_version)
    # nothing is listed or read twice, so there is nothing to keep
    async with Client(transport, mode="auto", client_info=us, cache=None) as client:
        yield client


async def list_tools(client: Client) -> tuple[types.Tool, ...]:
    found: list[types.Tool] = []
    cursor: str | None = None
    for _ in range(bounds.PAGES):
        page = await client.list_tools(cursor=cursor)
        found += page.tools
        if len(found) > bounds.TOOLS:
            raise ValueError(f"it has more than {bounds.TOOLS} tools")
        cursor = page.next_cursor
        if not cursor:
            return tuple(found)
    raise ValueError(f"its list of tools has more than {bounds.PAGES} pages")


@dataclass(slots=True)
class Allowance:
    """How much a server may write that nobody asked for, and who is told when it was more.

    `due` are the answers it owes.
    """

    on_lost: Lose
    most: float = bounds.UNASKED
    clock: Callable[[], float] = time.monotonic
    due: int = 0
    _left: float = 0
    _at: float = -inf

    def covers(self, messages: float, size: int) -> bool:
        """Take messages of so many bytes; return whether they are no more than it may write."""
        now = self.clock()
        forgiven = (now - self._at) * bounds.UNASKED_A_SECOND
        self._left = min(self.most, self._left + forgiven) - messages - size / bounds.KIB
        self._at = now
        if is_flood := self._left < 0:
            self.on_lost(_FLOOD)
        return not is_flood

    def covers_line(self, line: bytes, message: _Message) -> bool:
        said = message.message if isinstance(message, SessionMessage) else None
        if self.due and isinstance(said, types.JSONRPCResponse | types.JSONRPCError):
            self.due -= 1
            return True
        return self.covers(1, len(line))


@asynccontextmanager
async def _address(
    spec: ServerSpec, tail: LogTail, on_lost: Lose
) -> AsyncGenerator[TransportStreams, None]:
    url = spec.url or ""
    allowance = Allowance(on_lost)  # of what is no answer to a request of ours

    async def check(answer: httpx2.Response) -> None:
        """Bound what is read, and keep what the SDK tells nobody: how it was turned away."""
        if answer.headers.get("content-encoding", "identity") != "identity":
            raise httpx2.StreamError("it compresses its answers, although it was asked not to")
        kind = answer.headers.get("content-type", "").lower()
        if isinstance(answer.stream, httpx2.AsyncByteStream):
            if kind.startswith("text/event-stream"):
                is_asked = answer.request.method == "POST"
                allowed = Allowance(on_lost, _ASKED) if is_asked else allowance
                answer.stream = _BoundedEvents(answer.stream, allowed)
            else:
                answer.stream = _BoundedBody(answer.stream)
        if answer.is_error and answer.status_code != HTTPStatus.METHOD_NOT_ALLOWED:
            tail.feed(f"HTTP {answer.status_code} {answer.reason_phrase}\n".encode())

    certificates = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if url.startswith("https"):  # the usual ones take a tenth of a second to load
        certificates = await asyncio.to_thread(ssl.create_default_context)
    client = httpx2.AsyncClient(
        headers={**spec.headers, "accept-encoding": "identity"},
        timeout=httpx2.Timeout(_CONNECT_SECONDS, read=_SILENCE_SECONDS),
        verify=certificates,
        trust_env=False,
        event_hooks={"response": [check]},
    )
    speaking = streamable_http_client(
        url, http_client=client, max_sse_event_size=bounds.ANSWER_BYTES
    )
    async with client, speaking as (received, sent):
        yield _Received(received, lambda: None), sent


class _BoundedBody(httpx2.AsyncByteStream):
    """A body that is read as a whole, unless that is too much."""

    error: type[Exception] = httpx2.StreamError

    def __init__(self, body: httpx2.AsyncByteStream) -> None:
        self._body = body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        held = bytearray()
        async for chunk in self._body:
            held += chunk
            if len(held) > bounds.ANSWER_BYTES:
                raise self.error(f"it answered with more than {bounds.ANSWER_BYTES} bytes")
            if self._is_piece(held, len(chunk)):
                yield self._check(bytes(held))
                held.clear()
        yield self._check(bytes(held))

    def _is_piece(self, _held: bytearray, _new: int) -> bool:
        """Whether what is there, of which so much is new, can be read without what follows."""
        return False

    def _check(self, piece: bytes) -> bytes:
        if has_many_values(piece):
            raise self.error(_TOO_MANY_VALUES)
        return piece

    async def aclose(self) -> None:
        await self._body.aclose()


class _BoundedEvents(_BoundedBody):
    """A body that is read event by event, as long as the `allowance` covers them."""

    error = httpx2.SSEError

    def __init__(self, body: httpx2.AsyncByteStream, allowance: Allowance) -> None:
        super().__init__(body)
        self._allowance = allowance

    def _is_piece(self, held: bytearray, new: int) -> bool:
        return _END_OF_EVENT.search(held, max(0, len(held) - new - 3)) is not None

    def _check(self, piece: bytes) -> bytes:
        if not self._allowance.covers(len(_END_OF_EVENT.findall(piece)), len(piece)):
            raise self.error(f"it {_FLOOD}")
        return super()._check(piece)


@asynccontextmanager
async def _program(
    spec: ServerSpec, tail: LogTail, on_lost: Lose, on_close: Notify
) -> AsyncGenerator[TransportStreams, None]:
    """Start a program; a line of its output that is too long is the last one that is read.

    The SDK's own pipes know no bound, and take quadratic time for a long line.
    """
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.subprocess_exec(
        lambda: SubprocessStreamProtocol(_CHUNK, loop),
        *_command(spec),
        env={**get_default_environment(), **spec.env},
        cwd=spec.cwd or None,
        start_new_session=True,  # a Ctrl-C in the terminal is for us alone
        creationflags=systems.CREATION_FLAGS,
    )
    release = systems.hold_tree(transport.get_pid() or 0)
    program = Process(transport, protocol, loop)
    source, sink, errors = program.stdout, program.stdin, program.stderr
    assert source and sink and errors  # noqa: S101, PT018 - all three are pipes
    arriving, received = anyio.create_memory_object_stream[_Message](0)
    sent, leaving = anyio.create_memory_object_stream[SessionMessage](0)
    allowance = Allowance(on_lost)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_read, source, arriving, tail, allowance)
        tasks.start_soon(_write, sink, leaving, arriving, allowance)
        tasks.start_soon(_listen, errors, tail, allowance)
        try:
            yield _Received(received, lambda: on_lost("")), sent
        finally:
            on_close()
            received.close()
            sent.close()
            with anyio.CancelScope(shield=True):
                await _end(program)
            transport.close()
            release()
            tasks.cancel_scope.cancel()


async def _read(
    source: asyncio.StreamReader,
    arriving: MemoryObjectSendStream[_Message],
    tail: LogTail,
    allowance: Allowance,
) -> None:
    lines = LineDecoder(bounds.ANSWER_BYTES)
    with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
        async with arriving:
            try:
                while chunk := await source.read(_CHUNK):
                    for line in lines.feed(chunk):
                        message = _parse(line)
                        if not allowance.covers_line(line, message):
                            return
                        await arriving.send(message)
            except ValueError:
                tail.feed(b"it wrote a line of more than %d bytes\n" % bounds.ANSWER_BYTES)
    while await source.read(_CHUNK):
        pass  # whoever is to end may have to get rid of this before


async def _write(
    sink: asyncio.StreamWriter,
    leaving: MemoryObjectReceiveStream[SessionMessage],
    arriving: MemoryObjectSendStream[_Message],
    allowance: Allowance,
) -> None:
    async with leaving:
        try:
            async for one in leaving:
                allowance.due += isinstance(one.message, types.JSONRPCRequest)
                message = one.message.model_dump_json(by_alias=True, exclude_unset=True)
                sink.write(message.encode() + b"\n")
                await sink.drain()
        except OSError:
            arriving.close()  # who waits for an answer would wait for ever


async def _listen(errors: asyncio.StreamReader, tail: LogTail, allowance: Allowance) -> None:
    """Read what a program writes to its standard error, so that it never waits for us."""
    while chunk := await errors.read(_CHUNK):
        if not allowance.covers(0, len(chunk)):
            break
        tail.feed(chunk)
    tail.finish()


async def _end(program: Process) -> None:
    """Close the input of a program, and kill all of its session if it does not end then."""
    assert program.stdin is not None  # noqa: S101 - it is a pipe
    program.stdin.close()
    for number in (*systems.ENDINGS, None):
        with anyio.move_on_after(_GRACE_SECONDS):
            # `wait` would wait for those, too, who have got its pipes
            while program.returncode is None:  # noqa: ASYNC110
                await asyncio.sleep(_GLANCE_SECONDS)
            return
        if number is not None:
            systems.kill_tree(program.pid, number)


class _Numbered(msgspec.Struct):
    """What is read of a message that is too large to be read."""

    id: int | str


def _parse(line: bytes) -> _Message:
    try:
        if has_many_values(line):
            return _refuse(msgspec.json.decode(line, type=_Numbered).id, _TOO_MANY_VALUES)
        return SessionMessage(types.jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError as error:
        return error


def _refuse(number: int | str, problem: str) -> SessionMessage:
    error = types.ErrorData(code=types.INTERNAL_ERROR, message=problem)
    return SessionMessage(types.JSONRPCError(jsonrpc="2.0", id=number, error=error))


def has_many_values(document: bytes) -> bool:
    """Return whether JSON has so many values that to decode them would hold everybody up."""
    if sum(map(document.count, _BEFORE_VALUES)) <= bounds.VALUES:
        return False
    bare = document.replace(b"\\\\", b"").replace(b'\\"', b"")
    if bare.count(b'"') > 2 * bounds.VALUES:
        return True
    outside = b"".join(bare.split(b'"')[::2])
    return sum(map(outside.count, _BEFORE_VALUES)) > bounds.VALUES


def _command(spec: ServerSpec) -> tuple[str, ...]:
    """Return how to start a program so that it dies with us, where the kernel sees to that.

    Elsewhere the end of its standard input, which every server heeds, has to do: the watcher that
    `parent_death` would leave behind reads there itself.
    """
    if sys.platform != "linux":
        return spec.command
    return systems.tie_to_parent(spec.command, parent_death.__file__)


class _Received(ObjectReceiveStream[_Message]):
    """What comes from a server, but for results too large to be checked; tells when it is over."""

    def __init__(self, received: ReadStream[_Message], on_lost: Notify) -> None:
        self._received = received
        self._on_lost = on_lost

    async def receive(self) -> _Message:
        received = await self._received.receive()
        message = received.message if isinstance(received, SessionMessage) else None
        if not isinstance(message, types.JSONRPCResponse):
            return received
        lists = (len(one) for one in message.result.values() if isinstance(one, list))
        if (longest := max(lists, default=0)) <= bounds.ITEMS:
            return received
        problem = f"the result has a list of {longest} items, more than {bounds.ITEMS}"
        return _refuse(message.id, problem)

    async def aclose(self) -> None:
        await self._received.aclose()
        self._on_lost()
