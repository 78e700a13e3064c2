"""A client, HAProxy and Temper's HTTP server on loopback, to compare how both read requests.

    client --+-- HAProxy, as it is --+-- connections.py -- a recorder -- edge.py -- an endpoint
             +-- HAProxy, lenient ---+
             +-----------------------+

HAProxy writes its reading of a request into the header `x-oracle`: a number, the method, the
target, the size of the body and the host. It sends requests of different clients on the same
connections. If Temper reads less of a request than HAProxy forwarded, the remaining bytes become
the beginning of the next request.
"""

import asyncio
import os
import re
import socket
import subprocess
import tempfile
from collections.abc import AsyncGenerator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, cast

from fastapi import FastAPI
from starlette.types import Receive, Scope, Send

from proxy.api.client_connection import headers_of
from proxy.api.connections import ConnectionLimits
from proxy.api.dialects import CHAT, DialectRoute, Dialects
from proxy.api.edge import Access, Edge
from proxy.api.server import listen, serving
from tests.oracle.attacks import HOST
from tests.timeouts import TIMEOUT_SECONDS

ROUTES = ("haproxy", "lenient", "direct")
MARK = "x-oracle"
# The client closes its side when no bytes have arrived for this time; too early, less is compared.
_QUIET_SECONDS = 0.005
_LIMITS = ConnectionLimits(TIMEOUT_SECONDS, 64, TIMEOUT_SECONDS, TIMEOUT_SECONDS)
_READING = "%[unique-id] %[method,hex] %[url,hex] %[req.body_size] %[req.hdr(host),hex]"
_CONFIGURATION = f"""
global
  nbthread 1
defaults
  mode http
  timeout connect {TIMEOUT_SECONDS:.0f}s
  timeout client {TIMEOUT_SECONDS:.0f}s
  timeout server {TIMEOUT_SECONDS:.0f}s
  unique-id-format %rt
  default_backend temper
frontend haproxy
  bind "${{HAPROXY}}"
  http-request wait-for-body time {TIMEOUT_SECONDS:.0f}s
  http-request set-header {MARK} "{_READING}"
frontend lenient
  bind "${{LENIENT}}"
  option accept-invalid-http-request
  http-request wait-for-body time {TIMEOUT_SECONDS:.0f}s
  http-request set-header {MARK} "{_READING}"
backend temper
  http-reuse always
  server one "${{TEMPER}}"
"""
_ABSOLUTE = re.compile(rb"[A-Za-z][A-Za-z0-9+.-]*://([^/?#]*)")


class Request(NamedTuple):
    """A request as a program reads it; `size` is the size of its body, None if it was not read."""

    method: str
    target: bytes
    size: int | None
    host: bytes


@dataclass
class Reading:
    """A request that reached the application, and HAProxy's reading of it."""

    number: int
    request: Request
    mark: str

    @property
    def marked(self) -> Request | None:
        """HAProxy's reading; None without a mark.

        The host of an absolute target replaces the header `host` (RFC 9112, 3.2.2). A lenient
        HAProxy does not do this, so it is done here.
        """
        fields = self.mark.split(" ")
        if len(fields) not in (4, 5) or not fields[0].isdigit():
            return None
        host = bytes.fromhex(fields[4]) if len(fields) == 5 else b""
        method, target = bytes.fromhex(fields[1]).decode(), bytes.fromhex(fields[2])
        if absolute := _ABSOLUTE.match(target):
            host, target = absolute[1], target[absolute.end() :]
        # the target of an ASGI scope has no fragment
        return Request(method, target.partition(b"#")[0] or b"/", int(fields[3]), host)


@dataclass
class Recorder:
    """Records each request before the checks of the edge, and answers those that pass them.

    The body of a target that begins with "/unread" is not read.
    """

    readings: list[Reading] = field(default_factory=list)
    running: int = 0

    def __post_init__(self) -> None:
        dialects = Dialects(DialectRoute(lambda: CHAT, ("/v1/chat/completions",)))
        access = Access(hosts=frozenset({HOST.decode()}))
        self._edge = Edge(cast("FastAPI", self._answer), {}, access, dialects)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        headers = headers_of(scope)
        query = b"?" + scope["query_string"] if scope["query_string"] else b""
        host = headers.get("host", "").strip(" \t").encode("latin-1")
        request = Request(scope["method"], (scope["raw_path"] or b"/") + query, None, host)
        reading = Reading(len(self.readings), request, headers.get(MARK, ""))
        self.readings.append(reading)
        scope["extensions"][MARK] = reading
        self.running += 1
        try:
            await self._edge(scope, receive, send)
        finally:
            self.running -= 1

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        reading: Reading = scope["extensions"][MARK]
        if not reading.request.target.startswith(b"/unread"):
            reading.request = reading.request._replace(size=await _size_of(receive))
        headers = [(b"content-length", b"2"), (b"x-number", b"%d" % reading.number)]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"ok"})


async def _size_of(receive: Receive) -> int | None:
    """Read a body; returns its size, None if the client left before its end."""
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        size += len(message.get("body", b""))
        if not message.get("more_body", False):
            return size


@dataclass
class Chain:
    """The three routes to the recorder: the address of each, by name."""

    recorder: Recorder
    ports: dict[str, int]

    async def send(self, route: str, data: bytes) -> bytes:
        """Send bytes on a new connection; returns the bytes that come back.

        Raises `TimeoutError` if the connection, or the handling of a request on it, does not end.
        """
        async with asyncio.timeout(TIMEOUT_SECONDS / 2):
            reader, writer = await asyncio.open_connection("127.0.0.1", self.ports[route])
            try:
                answer = await _exchange(reader, writer, data)
            finally:
                writer.close()
            while self.recorder.running:  # noqa: ASYNC110 - no event reports the end
                await asyncio.sleep(0)
        return answer


async def _exchange(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, data: bytes
) -> bytes:
    """Send bytes and read to the end; closes the client's side once no more bytes arrive."""
    came = bytearray()
    with suppress(ConnectionError):
        writer.write(data)
        reading = asyncio.ensure_future(reader.read(65536))
        has_ended = False
        while True:
            done, _ = await asyncio.wait([reading], timeout=None if has_ended else _QUIET_SECONDS)
            if not done:
                has_ended = True
                writer.write_eof()
            elif piece := reading.result():
                came += piece
                reading = asyncio.ensure_future(reader.read(65536))
            else:
                break
    return bytes(came)


@asynccontextmanager
async def running_chain(program: str) -> AsyncGenerator[Chain, None]:
    """Run Temper's server, and HAProxy (`program`) in front of it."""
    recorder = Recorder()
    with ExitStack() as stack:
        chain, direct = (stack.enter_context(listen("127.0.0.1", 0)) for _ in range(2))
        async with serving(recorder, chain, 1, _LIMITS, also=[direct], signals=()):
            with haproxy(program, _port(chain)) as ports:
                yield Chain(recorder, {**ports, "direct": _port(direct)})


def _port(listening: socket.socket) -> int:
    port: int = listening.getsockname()[1]
    return port


@contextmanager
def haproxy(program: str, temper: int) -> Iterator[dict[str, int]]:
    """Run HAProxy on sockets that are open already; yields their ports by route."""
    with ExitStack() as stack:
        usual, lenient = (
            stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(2)
        )
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        file = Path(folder, "haproxy.cfg")
        file.write_text(_CONFIGURATION)
        variables = {"HAPROXY": f"fd@{usual.fileno()}", "LENIENT": f"fd@{lenient.fileno()}"}
        process = stack.enter_context(
            subprocess.Popen(
                [program, "-db", "-f", str(file)],
                env={**os.environ, **variables, "TEMPER": f"127.0.0.1:{temper}"},
                pass_fds=[usual.fileno(), lenient.fileno()],
                stdout=subprocess.DEVNULL,
            )
        )
        try:
            yield {"haproxy": _port(usual), "lenient": _port(lenient)}
        finally:
            process.terminate()
            process.wait(TIMEOUT_SECONDS)
