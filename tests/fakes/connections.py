"""A connection pool and a server in one loop with a clock that a test can advance."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

from proxy.backends.connection_pool import Connection, ConnectionPool, Endpoint
from tests.fakes.raw_backend import RawBackend, Script, raw_backend
from tests.fakes.steady_loop import SteadyLoop

SOON = 5.0
HEAD = b"POST /x HTTP/1.1\r\ncontent-length: 2\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


class SkippingLoop(SteadyLoop):
    """A loop with a clock that a test can advance."""

    ahead = 0.0

    def time(self) -> float:
        return super().time() + self.ahead

    async def skip(self, seconds: float) -> None:
        self.ahead += seconds
        for _ in range(3):
            await asyncio.sleep(0)


Scene = Callable[[ConnectionPool, RawBackend], Awaitable[None]]


def play(scene: Scene, *scripts: Script) -> RawBackend:
    async def run() -> RawBackend:
        async with raw_backend(*scripts) as backend, asyncio.timeout(1000), opened(backend) as pool:
            await scene(pool, backend)
            return backend

    with asyncio.Runner(loop_factory=SkippingLoop) as runner:
        return runner.run(run())


class RecordingPool(ConnectionPool):
    """A pool that records its connections, because some scenes do not release them."""

    def __init__(self, endpoint: Endpoint, connect_seconds: float) -> None:
        super().__init__(endpoint, connect_seconds)
        self.given: list[Connection] = []

    async def send(self, head: bytes, body: bytes, deadline: float) -> Connection:
        self.given.append(await super().send(head, body, deadline))
        return self.given[-1]


@asynccontextmanager
async def opened(backend: RawBackend) -> AsyncGenerator[ConnectionPool, None]:
    made = RecordingPool(Endpoint(*backend.address), SOON)
    try:
        yield made
    finally:
        for line in made.given:  # the server may close its end too late
            line.close()
        made.close()


def later(seconds: float = SOON) -> float:
    return asyncio.get_running_loop().time() + seconds


async def send(pool: ConnectionPool, deadline: float | None = None) -> Connection:
    return await pool.send(HEAD, b"{}", deadline or later())


async def read(line: Connection) -> bytes:
    body = b""
    while chunk := await line.receive(later()):
        body += chunk
    return body


async def exchange(pool: ConnectionPool) -> tuple[int, bytes]:
    line = await send(pool)
    try:
        return line.status, await read(line)
    finally:
        pool.release(line)
