"""An engine without a network, which answers with given bytes in given pieces."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from functools import cache
from itertools import pairwise

from proxy.api.app import ServerOptions, create_app
from proxy.api.edge import Edge
from proxy.backends.client import (
    Backend,
    BackendModel,
    DeferredBackend,
    Description,
    Health,
    Part,
    Send,
)
from proxy.backends.connection_pool import Connection, ConnectionPool, Endpoint
from proxy.backends.transport import BackendClient
from proxy.observability.metrics import Metrics
from proxy.observability.observers import Observers
from tests.fakes.asgi import HandMadeClient
from tests.fakes.backend import ScriptedBackend
from tests.fuzz.targets import run

Pieces = Sequence[bytes]

NOT_FOUND = b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n"
STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"


def cut(data: bytes, places: Iterable[int]) -> Pieces:
    """Split bytes at offsets; any numbers are accepted as offsets."""
    size = len(data)
    ends = sorted({position % (size + 1) for position in places} | {0, size})
    return [data[start:end] for start, end in pairwise(ends)]


class Wire(asyncio.Transport):
    """The writer of a connection; after a request it sends the pieces to the reader."""

    def __init__(self, connection: Connection, pieces: Pieces) -> None:
        super().__init__()
        self._connection = connection
        self._pieces = pieces
        self._is_open = True
        self._goes_on = asyncio.Event()
        self._goes_on.set()
        self._sending: asyncio.Task[None] | None = None

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self._sending = asyncio.create_task(self._send())

    async def _send(self) -> None:
        for piece in self._pieces:
            await asyncio.sleep(0)  # the reader gets this piece before the next
            await self._goes_on.wait()
            if not self._is_open:
                return
            self._connection.data_received(piece)
        await asyncio.sleep(0)
        if self._is_open:
            self._is_open = False
            self._connection.connection_lost(None)

    def abort(self) -> None:
        self._is_open = False
        self._goes_on.set()

    def pause_reading(self) -> None:
        self._goes_on.clear()

    def resume_reading(self) -> None:
        self._goes_on.set()


class FedPool(ConnectionPool):
    """An engine whose n-th response is the n-th list of pieces.

    All later responses repeat the last list. A request for a document, such as the list of models,
    gets 404.
    """

    def __init__(self, *answers: Pieces) -> None:
        super().__init__(Endpoint("engine.test", 80), 5.0)
        self.upstream_requests: list[bytes] = []
        self._answers = answers

    async def send(self, head: bytes, body: bytes, deadline: float) -> Connection:
        method, path, _ = head.partition(b"\r\n")[0].split(b" ")
        pieces: Pieces = [NOT_FOUND]
        if method == b"POST" and path in (b"/v1/chat/completions", b"/api/chat", b"/v1/messages"):
            self.upstream_requests.append(body)
            pieces = self._answers[min(len(self.upstream_requests), len(self._answers)) - 1]
        connection = Connection(asyncio.get_running_loop())
        connection.connection_made(Wire(connection, pieces))
        await connection.begin(b"", body, deadline)
        return connection

    def release(self, connection: Connection) -> None:
        connection.close()


class _Changing(DeferredBackend):
    """A backend that forwards to another one, which can be replaced."""

    name = "changing"

    def __init__(self) -> None:
        self.backend: Backend = ScriptedBackend()

    def _stream(self, send: Send[Part]) -> AsyncGenerator[Part, None]:
        return send(self.backend)

    async def _present(self) -> Backend:
        return self.backend

    async def models(self) -> tuple[BackendModel, ...]:
        return await self.backend.models()

    async def describe(self, model: str) -> Description:
        return await self.backend.describe(model)

    async def health(self) -> Health:
        return await self.backend.health()


@cache
def _served() -> tuple[Edge, _Changing]:
    """Return an application and its replaceable backend; cached, since this takes long."""
    serving, changing = ServerOptions(), _Changing()
    return create_app(serving.services_for(changing), serving, Observers(meter=Metrics())), changing


async def _ask(
    engine: Callable[[BackendClient], Backend], fed: FedPool, client: HandMadeClient
) -> None:
    app, changing = _served()
    changing.backend = engine(BackendClient("http://engine.test", pool=fed))
    await client.call(app)


def ask(
    engine: Callable[[BackendClient], Backend], client: HandMadeClient, *answers: Pieces
) -> FedPool:
    """Send a request to Temper in front of an engine; return the upstream requests."""
    fed = FedPool(*answers)
    run(_ask(engine, fed, client))
    return fed
