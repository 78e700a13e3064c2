"""A network in memory: a connection is two queues of bytes, delivered in parts of random size.

    client transport  --> _Flow --> server protocol
    client protocol   <-- _Flow <-- server transport

A flow delivers bytes in order, after random delays, and stops while its receiver does not read. As
with TCP, all bytes that were written before a normal close arrive, and then the end of the stream.
A crash, or a close with unread input, resets the connection: only some of the written bytes arrive.

Every endpoint belongs to a simulated process, its `host`. The variable `HOST` names the process
whose code runs. The callbacks of a protocol run in the context that created its connection or
listener.
"""

import asyncio
import errno
import os
import random
import socket
from collections.abc import Callable, Iterable
from contextvars import Context, ContextVar, copy_context
from dataclasses import dataclass, field
from typing import TypeVarTuple, Unpack

_KERNEL = 64 * 1024  # bytes in the buffer of the kernel, not in that of the transport
_HIGH, _LOW = 64 * 1024, 16 * 1024  # default limits of asyncio's write buffer
_MOST_DELIVERED = 64 * 1024
_SLOWEST_ACCEPT = 0.8  # seconds
_LOOK_SECONDS = 0.02

CLIENTS = "10.0.0.9"
HOST: ContextVar[str] = ContextVar("HOST", default=CLIENTS)
_Ts = TypeVarTuple("_Ts")

ProtocolFactory = Callable[[], asyncio.BaseProtocol]
Address = tuple[str, int]


def context_of(host: str) -> Context:
    """Return a context for the code of a process."""
    context = copy_context()
    context.run(HOST.set, host)
    return context


class _Socket:
    """The methods of a socket that uvicorn and httpcore call; most options have no effect."""

    def __init__(self, quiet: int, local: Address, peer: Address) -> None:
        self._quiet, self._local, self._peer = quiet, local, peer
        self.is_closed = False
        self.has_pending_end = False  # the peer has closed, but the program has not read the end
        self.error = 0
        self.resets_on_close = False
        self.family, self.type, self.proto = socket.AF_INET, socket.SOCK_STREAM, 0

    def fileno(self) -> int:
        """Return a descriptor that never becomes readable, or -1 if the peer has closed.

        httpcore treats -1 as readable, and therefore does not reuse the connection.
        """
        return -1 if self.is_closed or self.has_pending_end else self._quiet

    def getsockname(self) -> Address:
        return self._local

    def getpeername(self) -> Address:
        return self._peer

    def setsockopt(self, _level: int, option: int, value: object) -> None:
        if option == socket.SO_LINGER and _level == socket.SOL_SOCKET and value:
            self.resets_on_close = True

    def getsockopt(self, level: int, option: int, size: int = 0) -> int | bytes:
        if (level, option) == (socket.SOL_SOCKET, socket.SO_ERROR):
            error, self.error = self.error, 0
            return error
        return bytes(size) if size else 0


@dataclass(eq=False)
class _Flow:
    """The bytes that one side of a connection has sent and the other has not yet received."""

    network: "Network"
    receiver: "Endpoint"
    sender: "Endpoint"
    queue: bytearray = field(default_factory=bytearray)
    has_ended: bool = False  # the end of the stream follows the queue
    ends_with_reset: bool = False
    timer: asyncio.TimerHandle | None = None
    is_cut: bool = False

    def schedule(self) -> None:
        if self.timer is None and not self.is_cut and (self.queue or self.has_ended):
            self.timer = self.network.call_later(self.network.delay(), self._deliver)

    def cut(self) -> None:
        """Drop the bytes that were not delivered."""
        self.is_cut = True
        self.queue.clear()
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def _deliver(self) -> None:
        self.timer = None
        receiver = self.receiver
        is_held = receiver.is_paused and not receiver.is_closed
        if self.is_cut or self.network.is_stalled(receiver, self.sender):
            return  # `Network.resume` schedules the delivery again
        if is_held:  # `resume_reading` schedules the delivery again
            receiver.note_pending_end(
                has_ended=self.has_ended and self.sender.is_closed and not self.queue
            )
            return
        if self.queue:
            piece = bytes(self.queue[: self.network.size(len(self.queue))])
            del self.queue[: len(piece)]
            self.network.note("data", receiver, len(piece))
            if receiver.is_closed:
                self.cut()
                self.sender.run(self.sender.receive_reset)
                return
            receiver.run(receiver.protocol.data_received, piece)  # type: ignore[attr-defined]
            self.sender.run(self.sender.relieve)
            self.schedule()
        elif self.has_ended:
            self.has_ended = False
            self.network.note("reset" if self.ends_with_reset else "end", receiver, 0)
            receiver.run(receiver.receive_reset if self.ends_with_reset else receiver.receive_end)


class Endpoint(asyncio.Transport):
    """One side of a connection; its protocol runs in `context`."""

    def __init__(
        self, network: "Network", addresses: tuple[Address, Address], context: Context
    ) -> None:
        super().__init__()
        local, peer = addresses
        self.number = network.count_endpoint()
        self.network = network
        self.address = local
        self.context = context.copy()  # a copy, because a context cannot be entered twice
        self.host = context.get(HOST, CLIENTS)
        self.protocol: asyncio.BaseProtocol = asyncio.Protocol()
        self.incoming: _Flow
        self.outgoing: _Flow
        self.is_paused = False
        self.is_closed = False  # the socket is closed; `connection_lost` is called or scheduled
        self._is_closing = False
        self._has_read_end = False
        self._has_written_end = False
        self._is_full = False
        self._limits = (_LOW, _HIGH)
        self._socket = _Socket(network.quiet, local, peer)

    # The interface of `asyncio.Transport`.

    def get_extra_info(self, name: str, default: object = None) -> object:
        known = {
            "socket": self._socket,
            "sockname": self._socket.getsockname(),
            "peername": self._socket.getpeername(),
        }
        return known.get(name, default)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self.protocol

    def is_closing(self) -> bool:
        return self._is_closing

    def is_reading(self) -> bool:
        return not self.is_paused and not self._is_closing

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False
        self.note_pending_end(has_ended=False)
        self.incoming.schedule()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        high = _HIGH if high is None else high
        self._limits = (high // 4 if low is None else low, high)

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._limits

    def get_write_buffer_size(self) -> int:
        return max(0, len(self.outgoing.queue) - _KERNEL)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._is_closing or self._has_written_end:
            return
        if self._socket.error:  # see `receive_reset`
            self._lose(ConnectionResetError(errno.ECONNRESET, "reset"))
            return
        self.outgoing.queue += data
        self.outgoing.schedule()
        if not self._is_full and self.get_write_buffer_size() > self._limits[1]:
            self._is_full = True
            self.protocol.pause_writing()

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.write(b"".join(list_of_data))

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self._has_written_end = True
        self.outgoing.has_ended = True
        self.outgoing.schedule()

    def close(self) -> None:
        """Close as soon as the buffer of the transport is empty."""
        if self._is_closing:
            return
        self._is_closing = True
        self.relieve()

    def abort(self) -> None:
        if self.is_closed:
            return
        del self.outgoing.queue[_KERNEL:]
        self._is_closing = True
        self._finish(None)

    @property
    def is_open(self) -> bool:
        """True if neither side has closed; a close counts even if the other side does not know."""
        return not self.is_closed and not self.incoming.sender.is_closed

    # Called by the network.

    def run(self, callback: Callable[[Unpack[_Ts]], object], *args: *_Ts) -> None:
        """Run a callback as the process of this endpoint."""
        self.context.run(callback, *args)

    def accept(self, factory: ProtocolFactory) -> None:
        """Pass a connection that the kernel has accepted to the server."""
        if self.is_closed:
            return
        self.protocol, self.is_paused = factory(), False
        self.protocol.connection_made(self)
        self.incoming.schedule()

    def relieve(self) -> None:
        """Report space in the write buffer, or finish a close that waited for it."""
        if self._is_closing:
            if not self.get_write_buffer_size():
                self._finish(None)
        elif self._is_full and self.get_write_buffer_size() <= self._limits[0]:
            self._is_full = False
            self.protocol.resume_writing()

    def note_pending_end(self, *, has_ended: bool) -> None:
        self._socket.has_pending_end = has_ended

    def receive_end(self) -> None:
        if self.is_closed:
            return
        self._has_read_end = True
        if not self.protocol.eof_received():  # type: ignore[attr-defined]
            self.close()

    def receive_reset(self) -> None:
        if self.is_closed:
            return
        # after the end of the input, asyncio notices a reset only by writing
        if self._has_read_end and not self._is_full:
            self._socket.error = errno.ECONNRESET
        else:
            self._lose(ConnectionResetError(errno.ECONNRESET, "reset"))

    def crash(self) -> None:
        """Reset the connection, as the kernel does for a process that dies."""
        if not self.is_closed:
            self.network.note("crash", self, 0)
            self._socket.resets_on_close = True
            self._finish(None)

    def _lose(self, error: Exception | None) -> None:
        self._is_closing = True
        self.outgoing.cut()
        self._finish(error)

    def _finish(self, error: Exception | None) -> None:
        if self.is_closed:
            return
        self.is_closed = self._is_closing = self._socket.is_closed = True
        has_unread = bool(self.incoming.queue) and error is None
        if error is None:
            if self._socket.resets_on_close or has_unread:
                self.outgoing.ends_with_reset = True
                del self.outgoing.queue[
                    self.network.draw_bytes_before_reset(len(self.outgoing.queue)) :
                ]
            if self.outgoing.ends_with_reset or not self._has_written_end:
                self.outgoing.has_ended = True
            self.outgoing.schedule()
        self.network.forget(self)
        self.network.loop.call_soon(self.protocol.connection_lost, error, context=self.context)


@dataclass(frozen=True)
class ListeningSocket:
    """The methods of a listening socket that `proxy.api.server` calls."""

    address: Address
    family: int = socket.AF_INET

    def getsockname(self) -> Address:
        return self.address

    def setsockopt(self, *_option: object) -> None:
        """Accept every option; none has an effect."""

    def close(self) -> None:
        """Do nothing: the listeners are closed one by one."""


class Listener:
    """A listening socket, as `loop.create_server` returns one."""

    def __init__(self, network: "Network", address: Address, factory: ProtocolFactory) -> None:
        self.factory = factory
        self.context = copy_context()
        self.host = HOST.get()
        self._network, self._address = network, address

    def close(self) -> None:
        """Stop accepting; a second call has no effect."""
        if self in self._network.listeners.get(self._address, ()):
            self._network.listeners[self._address].remove(self)

    async def wait_closed(self) -> None:
        """Return immediately: open connections outlive their listener."""

    async def start_serving(self) -> None:
        """Do nothing: a listener accepts from its creation on."""


class Network:
    """All listeners and connections; every decision is drawn from `chance`."""

    loop: asyncio.AbstractEventLoop

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.quiet, self._held = os.pipe()  # a descriptor for polling that never has data
        self.listeners: dict[Address, list[Listener]] = {}
        self.context = copy_context()  # belongs to no process, so that no kill stops it
        self.shared: set[Address] = set()  # connections wait here while there is no listener
        self.refusing: set[str] = set()
        self.stalled: set[str] = set()
        self.slow: set[str] = set()
        self.endpoints: dict[Endpoint, None] = {}  # not a set, whose order would vary
        self.trace: list[tuple[float, str, str, int]] = []
        self._count = 0
        # a seed has a fast or a slow network, which delivers many or few bytes at once
        self._slowest = chance.choice((0.0002, 0.001, 0.004))
        self._drips = chance.choice((0.0, 0.05, 0.5))

    def close(self) -> None:
        os.close(self.quiet)
        os.close(self._held)

    def call_later(self, delay: float, callback: Callable[[], object]) -> asyncio.TimerHandle:
        """Call a function later, even if the current process has been killed by then."""
        return self.loop.call_later(delay, callback, context=self.context)

    def note(self, event: str, endpoint: Endpoint, size: int) -> None:
        host, port = endpoint.address
        self.trace.append((self.loop.time(), event, f"{host}:{port}#{endpoint.number}", size))

    def count_endpoint(self) -> int:
        self._count += 1
        return self._count

    def count_connections(self, address: Address) -> int:
        """Return the number of connections that the server at this address has open."""
        return sum(endpoint.address == address for endpoint in self.endpoints)

    def delay(self) -> float:
        return self.chance.random() * self._slowest

    def draw_bytes_before_reset(self, most: int) -> int:
        """Draw the number of bytes that arrive before a reset."""
        return self.chance.choice((0, most, self.chance.randint(0, most)))

    def size(self, most: int) -> int:
        """Draw the number of bytes that arrive together."""
        if self.chance.random() < self._drips:
            return self.chance.randint(1, min(most, 24))
        return self.chance.randint(min(most, 512), min(most, _MOST_DELIVERED))

    def is_stalled(self, *endpoints: Endpoint) -> bool:
        return any(endpoint.host in self.stalled for endpoint in endpoints)

    def forget(self, endpoint: Endpoint) -> None:
        self.endpoints.pop(endpoint, None)

    def listen(self, factory: ProtocolFactory, address: Address) -> Listener:
        listener = Listener(self, address, factory)
        self.listeners.setdefault(address, []).append(listener)
        return listener

    async def connect(
        self, factory: ProtocolFactory, address: Address, source_host: str
    ) -> Endpoint:
        """Connect, or raise OSError; a stalled host accepts, as its kernel does."""
        await asyncio.sleep(self.delay())
        while not (listeners := self._listeners_at(address)):
            if address not in self.shared:
                raise ConnectionRefusedError(errno.ECONNREFUSED, "refused")
            await asyncio.sleep(_LOOK_SECONDS)  # the connection waits in the backlog of the socket
        listener = self.chance.choice(listeners) if len(listeners) > 1 else listeners[0]
        source = (source_host, 40_000 + self._count % 20_000)
        client = Endpoint(self, (source, address), copy_context())
        server = Endpoint(self, (address, source), listener.context)
        client.outgoing = server.incoming = _Flow(self, server, client)
        server.outgoing = client.incoming = _Flow(self, client, server)
        for endpoint in (client, server):
            self.endpoints[endpoint] = None
        self.note("open", server, 0)
        if server.host in self.slow:
            server.is_paused = True  # the bytes of the client wait in the kernel
            seconds = self.chance.random() * _SLOWEST_ACCEPT
            self.call_later(seconds, lambda: server.run(server.accept, listener.factory))
        else:
            server.run(server.accept, listener.factory)
        client.protocol = factory()
        client.protocol.connection_made(client)
        return client

    def _listeners_at(self, address: Address) -> list[Listener]:
        listeners = self.listeners.get(address, ())
        return [listener for listener in listeners if listener.host not in self.refusing]

    def crash(self, host: str) -> None:
        """Reset all connections of a host, and refuse new connections to it."""
        self.refusing.add(host)
        for endpoint in [*self.endpoints]:
            if endpoint.host == host:
                endpoint.crash()

    def restart(self, host: str) -> None:
        self.refusing.discard(host)

    def stall(self, host: str) -> None:
        """Deliver nothing from or to a host until `resume`."""
        self.stalled.add(host)

    def resume(self, host: str) -> None:
        self.stalled.discard(host)
        for endpoint in [*self.endpoints]:
            endpoint.incoming.schedule()
            # the peer may have closed meanwhile; then its kernel answers with a reset
            endpoint.outgoing.schedule()
