"""A connection to one tool server, which is either a program to start or an address.

This module uses the MCP SDK, and does not reconnect. A program is stopped when Temper ends. A
program does not receive Temper's environment, which may contain secrets. The program's environment
consists of the few variables that the SDK inherits (such as PATH), and of the operator's variables.

A server is not trusted: the size of a message, the number of values in a message, and the rate of
unsolicited messages are limited (`bounds`).
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
from mcp.client._transport import ReadStream, TransportStreams  # the SDK exports no such types
from mcp.client.stdio import get_default_environment
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage

from proxy import bounds, systems
from proxy.dialects.lines import LineDecoder
from proxy.mcp.specification import ServerSpec
from proxy.processes import parent_death
from proxy.processes.process import LogTail

_CONNECT_SECONDS = 10.0
_SILENCE_SECONDS = 300.0  # between two events of a response; a call also has a time limit
_CHUNK = 65536
_GRACE_SECONDS = 2.0  # for the program to end, after its input was closed and after each signal
_POLL_SECONDS = 0.01
_TOO_MANY_VALUES = f"its response has more than {bounds.VALUES} values"
_BEFORE_VALUES = (b",", b"[", b"{")  # each value of a JSON document follows one of these
_END_OF_EVENT = re.compile(rb"\n\n|\r\n\r\n|\r\r")

# The budget of a stream that responds to a request. In addition to unsolicited messages, the stream
# may contain the longest response.
_WITH_RESPONSE = bounds.UNASKED + bounds.ANSWER_BYTES / bounds.KIB
_FLOOD = f"wrote more than {bounds.UNASKED:,} messages, or as many KiB, without a request"

Notify: TypeAlias = Callable[[], None]
# Receives the reason for closing a connection: the server's violation, or "" if the server ended.
OnLost: TypeAlias = Callable[[str], None]
_Message: TypeAlias = SessionMessage | Exception


@asynccontextmanager
async def connect(
    spec: ServerSpec, tail: LogTail, on_lost: OnLost, on_close: Notify = lambda: None
) -> AsyncGenerator[Client, None]:
    """Connect to a server and negotiate the protocol version.

    `tail` receives the standard error of a program, or the HTTP errors of an address. `on_lost` is
    called when the output of a program ends, or when a server floods the connection; the caller
    must then leave the block. If the connection to an address breaks, the block ends with an
    `ExceptionGroup`. `on_close` is called before a program is stopped, even if the negotiation
    failed. After this call, the task must not be canceled, or the program would continue to run.
    """
    if spec.url is not None:
        transport = _address(spec, tail, on_lost)
    else:
        transport = _program(spec, tail, on_lost, on_close)
    own_version = "0"
    with suppress(PackageNotFoundError):
        own_version = version("temper-proxy")
    info = types.Implementation(name="temper", version=own_version)
    # cache=None: the tools are listed only once per connection, so a cache would be useless
    async with Client(transport, mode="auto", client_info=info, cache=None) as client:
        yield client


async def list_tools(client: Client) -> tuple[types.Tool, ...]:
    tools: list[types.Tool] = []
    cursor: str | None = None
    # a limit, because a malicious server could announce a further page with every page
    for _ in range(bounds.PAGES):
        page = await client.list_tools(cursor=cursor)
        tools += page.tools
        if len(tools) > bounds.TOOLS:
            raise ValueError(f"it has more than {bounds.TOOLS} tools")
        cursor = page.next_cursor
        if not cursor:
            return tuple(tools)
    raise ValueError(f"its list of tools has more than {bounds.PAGES} pages")


@dataclass(slots=True)
class Allowance:
    """A server's budget for unsolicited messages; when the budget is spent, `on_lost` is called.

    The budget recovers with time. `due` is the number of requests that wait for a response.
    """

    on_lost: OnLost
    most: float = bounds.UNASKED
    clock: Callable[[], float] = time.monotonic
    due: int = 0
    _remaining: float = 0
    _updated_at: float = -inf

    def covers(self, messages: float, size: int) -> bool:
        """Subtract messages and bytes from the budget; return whether it was sufficient."""
        now = self.clock()
        recovered = (now - self._updated_at) * bounds.UNASKED_A_SECOND
        self._remaining = min(self.most, self._remaining + recovered) - messages - size / bounds.KIB
        self._updated_at = now
        if is_flood := self._remaining < 0:
            self.on_lost(_FLOOD)
        return not is_flood

    def covers_line(self, line: bytes, message: _Message) -> bool:
        content = message.message if isinstance(message, SessionMessage) else None
        # a response to a pending request is not unsolicited
        if self.due and isinstance(content, types.JSONRPCResponse | types.JSONRPCError):
            self.due -= 1
            return True
        return self.covers(1, len(line))


@asynccontextmanager
async def _address(
    spec: ServerSpec, tail: LogTail, on_lost: OnLost
) -> AsyncGenerator[TransportStreams, None]:
    url = spec.url or ""
    allowance = Allowance(on_lost)  # for messages outside of a response

    async def check(answer: httpx2.Response) -> None:
        """Limit a response, and write HTTP errors to `tail`, because the SDK hides them."""
        # a small compressed response could expand to gigabytes
        if answer.headers.get("content-encoding", "identity") != "identity":
            raise httpx2.StreamError(
                "it compresses its responses, although they were requested uncompressed"
            )
        kind = answer.headers.get("content-type", "").lower()
        if isinstance(answer.stream, httpx2.AsyncByteStream):
            if kind.startswith("text/event-stream"):
                is_response = answer.request.method == "POST"
                allowed = Allowance(on_lost, _WITH_RESPONSE) if is_response else allowance
                answer.stream = _BoundedEvents(answer.stream, allowed)
            else:
                answer.stream = _BoundedBody(answer.stream)
        if answer.is_error and answer.status_code != HTTPStatus.METHOD_NOT_ALLOWED:
            tail.feed(f"HTTP {answer.status_code} {answer.reason_phrase}\n".encode())

    certificates = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if url.startswith("https"):  # loading the default certificates takes 0.1 s
        certificates = await asyncio.to_thread(ssl.create_default_context)
    client = httpx2.AsyncClient(
        headers={**spec.headers, "accept-encoding": "identity"},
        timeout=httpx2.Timeout(_CONNECT_SECONDS, read=_SILENCE_SECONDS),
        verify=certificates,
        trust_env=False,  # no proxies of the environment, and no passwords of ~/.netrc
        event_hooks={"response": [check]},
    )
    transport = streamable_http_client(
        url, http_client=client, max_sse_event_size=bounds.ANSWER_BYTES
    )
    async with client, transport as (received, sent):
        yield _Received(received, lambda: None), sent


class _BoundedBody(httpx2.AsyncByteStream):
    """A body of limited size; its bytes are checked before they are passed on."""

    error: type[Exception] = httpx2.StreamError

    def __init__(self, body: httpx2.AsyncByteStream) -> None:
        self._body = body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        buffer = bytearray()
        async for chunk in self._body:
            buffer += chunk
            if len(buffer) > bounds.ANSWER_BYTES:
                raise self.error(f"it answered with more than {bounds.ANSWER_BYTES} bytes")
            if self._has_event(buffer, len(chunk)):
                yield self._check(bytes(buffer))
                buffer.clear()
        yield self._check(bytes(buffer))

    def _has_event(self, _buffer: bytearray, _new: int) -> bool:
        """Return whether the buffer contains a whole event; its last `_new` bytes are new."""
        return False

    def _check(self, data: bytes) -> bytes:
        if has_too_many_values(data):
            raise self.error(_TOO_MANY_VALUES)
        return data

    async def aclose(self) -> None:
        await self._body.aclose()


class _BoundedEvents(_BoundedBody):
    """A body of events, each of which is checked and subtracted from the `allowance`."""

    error = httpx2.SSEError

    def __init__(self, body: httpx2.AsyncByteStream, allowance: Allowance) -> None:
        super().__init__(body)
        self._allowance = allowance

    def _has_event(self, buffer: bytearray, new: int) -> bool:
        # the first 3 bytes of an end mark may have arrived with the previous chunk
        return _END_OF_EVENT.search(buffer, max(0, len(buffer) - new - 3)) is not None

    def _check(self, data: bytes) -> bytes:
        if not self._allowance.covers(len(_END_OF_EVENT.findall(data)), len(data)):
            raise self.error(f"it {_FLOOD}")
        return super()._check(data)


@asynccontextmanager
async def _program(
    spec: ServerSpec, tail: LogTail, on_lost: OnLost, on_close: Notify
) -> AsyncGenerator[TransportStreams, None]:
    """Start a program; stop reading its messages after an overlong line of output.

    This replaces the transport of the SDK, which does not limit the length of a line, and which
    takes quadratic time for a long line.
    """
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.subprocess_exec(
        lambda: SubprocessStreamProtocol(_CHUNK, loop),
        *_command(spec),
        # not Temper's own environment, which may contain API keys
        env={**get_default_environment(), **spec.env},
        cwd=spec.cwd or None,
        start_new_session=True,  # otherwise Ctrl-C in the terminal would end the program, too
        creationflags=systems.CREATION_FLAGS,
    )
    release = systems.tie_tree(transport.get_pid() or 0)
    program = Process(transport, protocol, loop)
    source, sink, errors = program.stdout, program.stdin, program.stderr
    assert source and sink and errors  # noqa: S101, PT018 - all three are pipes
    arriving, received = anyio.create_memory_object_stream[_Message](0)
    sent, leaving = anyio.create_memory_object_stream[SessionMessage](0)
    allowance = Allowance(on_lost)

    # the streams are served concurrently, because a full pipe would block the program
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
        pass  # further output is discarded, because a full pipe would keep the program from ending


async def _write(
    sink: asyncio.StreamWriter,
    leaving: MemoryObjectReceiveStream[SessionMessage],
    arriving: MemoryObjectSendStream[_Message],
    allowance: Allowance,
) -> None:
    async with leaving:
        try:
            async for outgoing in leaving:
                allowance.due += isinstance(outgoing.message, types.JSONRPCRequest)
                message = outgoing.message.model_dump_json(by_alias=True, exclude_unset=True)
                sink.write(message.encode() + b"\n")
                await sink.drain()
        except OSError:
            arriving.close()  # otherwise a pending call would never return


async def _listen(errors: asyncio.StreamReader, tail: LogTail, allowance: Allowance) -> None:
    """Read the standard error of a program; if it is not read, a full pipe blocks the program."""
    while chunk := await errors.read(_CHUNK):
        if not allowance.covers(0, len(chunk)):
            break
        tail.feed(chunk)
    tail.finish()


async def _end(program: Process) -> None:
    """Close the input of a program; if it does not end, send signals to its process group."""
    assert program.stdin is not None  # noqa: S101 - it is a pipe
    program.stdin.close()
    for number in (*systems.ENDINGS, None):  # None: wait once more, after the last signal
        with anyio.move_on_after(_GRACE_SECONDS):
            # not `program.wait()`, which would also wait for descendants that inherited the pipes
            while program.returncode is None:  # noqa: ASYNC110
                await asyncio.sleep(_POLL_SECONDS)
            return
        if number is not None:
            systems.kill_tree(program.pid, number)


class _Numbered(msgspec.Struct):
    """The id of a refused message with too many values; the remaining members are not parsed."""

    id: int | str


def _parse(line: bytes) -> _Message:
    try:
        if has_too_many_values(line):
            return _refuse(msgspec.json.decode(line, type=_Numbered).id, _TOO_MANY_VALUES)
        return SessionMessage(types.jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError as error:
        return error


def _refuse(number: int | str, problem: str) -> SessionMessage:
    error = types.ErrorData(code=types.INTERNAL_ERROR, message=problem)
    return SessionMessage(types.JSONRPCError(jsonrpc="2.0", id=number, error=error))


def has_too_many_values(document: bytes) -> bool:
    """Return whether a JSON document has so many values that decoding would take too long."""
    if sum(map(document.count, _BEFORE_VALUES)) <= bounds.VALUES:  # the usual case
        return False
    # Many of the counted characters may be inside strings, because the result of a tool is often a
    # file. So the strings are removed, and the remaining characters are counted.
    unescaped = document.replace(b"\\\\", b"").replace(b'\\"', b"")
    if unescaped.count(b'"') > 2 * bounds.VALUES:
        return True
    outside_strings = b"".join(unescaped.split(b'"')[::2])
    return sum(map(outside_strings.count, _BEFORE_VALUES)) > bounds.VALUES


def _command(spec: ServerSpec) -> tuple[str, ...]:
    """Return the command line of a program; on Linux, the kernel kills the program if Temper dies.

    On other systems, the program ends when it notices the end of its standard input. The watcher
    process of `parent_death` cannot be used for tool servers, because the watcher would read their
    standard input itself.
    """
    if sys.platform != "linux":
        return spec.command
    return systems.tie_to_parent(spec.command, parent_death.__file__)


class _Received(ObjectReceiveStream[_Message]):
    """The messages of a server; a result with an overlong list becomes an error.

    `on_lost` is called at the end of the stream.
    """

    def __init__(self, received: ReadStream[_Message], on_lost: Notify) -> None:
        self._received = received
        self._on_lost = on_lost

    async def receive(self) -> _Message:
        received = await self._received.receive()
        message = received.message if isinstance(received, SessionMessage) else None
        if not isinstance(message, types.JSONRPCResponse):
            return received
        lists = (len(value) for value in message.result.values() if isinstance(value, list))
        if (longest := max(lists, default=0)) <= bounds.ITEMS:
            return received
        problem = f"the result has a list of {longest} items, more than {bounds.ITEMS}"
        return _refuse(message.id, problem)

    async def aclose(self) -> None:
        await self._received.aclose()
        self._on_lost()
