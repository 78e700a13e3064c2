import asyncio
import gzip
import zlib
from collections.abc import Awaitable, Callable

import pytest

from benchmarks.faults.toxics import Caller
from proxy.backends.transport import BackendClient
from tests.fakes.raw_backend import raw_backend
from tests.patience import PATIENCE_SECONDS


async def talk(url: str, conversation: Callable[[BackendClient], Awaitable[bytes]]) -> bytes:
    connection = BackendClient(url)
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await conversation(connection)
    finally:
        await connection.close()


REFUSED = b'{"error": {"message": "too long"}}'
PACKED = {
    "gzip": gzip.compress(REFUSED),
    "deflate": zlib.compress(REFUSED),
}


@pytest.mark.parametrize(
    ("encoding", "packed", "body"),
    [(name, packed, REFUSED) for name, packed in PACKED.items()]
    + [("br", b"nonsense", b""), ("gzip", PACKED["gzip"][:9], b""), ("gzip", b"", b"")],
    ids=["gzip", "deflate", "unknown", "cut", "empty"],
)
@pytest.mark.parametrize("size", [1, 1000])
def test_a_compressed_error_keeps_its_status(
    encoding: str, packed: bytes, body: bytes, size: int
) -> None:
    head = b"HTTP/1.1 429 Slow\r\ncontent-encoding: %s\r\nretry-after: 7\r\n" % encoding.encode()

    async def refusing(caller: Caller) -> None:
        await caller.request()
        await caller.send(head + b"content-length: %d\r\n\r\n" % len(packed))
        for start in range(0, len(packed), size):
            await caller.send(packed[start : start + size])

    async def ask(connection: BackendClient) -> bytes:
        async with connection.post("/x", b"{}", {}) as answer:
            document = await answer.whole()
            assert (document.status, document.retry_after) == (429, "7")
            assert answer.is_whole or not body
            return document.body

    async def scene() -> None:
        async with raw_backend(refusing) as backend:
            assert await talk(backend.url, ask) == body

    asyncio.run(scene())
