"""Compressed request bodies have the same content and limits as plain bodies."""

import asyncio
import gzip
import sys
import zlib
from collections.abc import Sequence

import pytest
from starlette.types import Message

from proxy.api.compressed_bodies import decompress, is_compressed
from proxy.api.request_reader import BodyLimits, read_body
from proxy.bounds import MIB
from proxy.errors import InvalidRequest, RequestTooLarge
from tests.fakes.asgi import HandMadeClient

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

JSON = {"content-type": "application/json"}
BODY = b'{"messages":[' + b",".join(b'{"role":"user","content":"%d"}' % n for n in range(9)) + b"]}"


def pack(coding: str, body: bytes) -> bytes:
    return zstd.compress(body) if coding == "zstd" else gzip.compress(body)


def body_of(coding: str, pieces: Sequence[bytes], limit: int = MIB) -> bytes:
    """Read a body that arrives in these pieces."""
    left = [*pieces]

    async def receive() -> Message:
        piece = left.pop(0)
        return {"type": "http.request", "body": piece, "more_body": bool(left)}

    length = str(sum(map(len, pieces)))
    scope = HandMadeClient(
        headers={**JSON, "content-encoding": coding, "content-length": length}
    ).scope
    plain, receiving = decompress(scope, receive, coding)
    return asyncio.run(read_body(plain, receiving, BodyLimits(limit, 5)))


@pytest.mark.parametrize("coding", ["gzip", "x-gzip", "zstd", "GZip ", "ZSTD"])
@pytest.mark.parametrize("size", [1, 7, 100_000])
def test_a_compressed_body_is_decompressed_for_any_chunk_size(coding: str, size: int) -> None:
    packed = pack(coding.strip().lower(), BODY)
    assert is_compressed({"content-encoding": coding})
    pieces = [packed[start : start + size] for start in range(0, len(packed), size)]
    assert body_of(coding, [*pieces, b""]) == BODY


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
@pytest.mark.parametrize("size", [256 * 1024 - 1, 256 * 1024, 256 * 1024 + 1, 1_000_000])
def test_a_body_about_as_large_as_the_output_buffer_is_decompressed_completely(
    coding: str, size: int
) -> None:
    assert body_of(coding, [pack(coding, b"x" * size)]) == b"x" * size


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_a_small_body_that_expands_beyond_the_limit_is_refused(coding: str) -> None:
    packed = pack(coding, b" " * 64 * MIB)
    assert len(packed) < 100_000
    with pytest.raises(RequestTooLarge) as raised:
        body_of(coding, [packed])
    assert raised.value.limit == MIB


EMPTY_BLOCKS = b"\x00\x00\x00\xff\xff" * 300_000
SKIPPED = b"\x50\x2a\x4d\x18" + (2 * MIB).to_bytes(4, "little") + bytes(2 * MIB)
WIDE_WINDOW = b"\x28\xb5\x2f\xfd\x00\x88" + b"\x01\x00\x00"  # a frame that needs 128 MiB


@pytest.mark.parametrize(
    ("coding", "pieces"),
    [
        ("gzip", [BODY]),
        ("gzip", [b""]),
        ("gzip", [gzip.compress(BODY)[:-9]]),
        ("gzip", [gzip.compress(BODY)[:-1] + b"x"]),
        ("gzip", [gzip.compress(BODY), b"more"]),
        ("gzip", [gzip.compress(b"") * 2]),
        ("gzip", [zlib.compress(BODY)]),
        ("gzip", [gzip.compress(b"")[:10], EMPTY_BLOCKS, EMPTY_BLOCKS]),
        ("zstd", [BODY]),
        ("zstd", [zstd.compress(BODY)[:-4]]),
        ("zstd", [zstd.compress(BODY) + b"more"]),
        ("zstd", [SKIPPED, zstd.compress(BODY)]),
        ("zstd", [WIDE_WINDOW]),
    ],
)
def test_a_damaged_compressed_body_is_refused(coding: str, pieces: list[bytes]) -> None:
    with pytest.raises(InvalidRequest) as raised:
        body_of(coding, pieces)
    assert raised.value.param == "content-encoding"


@pytest.mark.parametrize("coding", ["", "identity", "br", "gzip, gzip", "deflate"])
def test_other_content_codings_do_not_count_as_compressed(coding: str) -> None:
    assert not is_compressed({"content-encoding": coding})
    assert not is_compressed({})


def test_a_disconnect_message_is_passed_on_during_decompression() -> None:
    client = HandMadeClient(gzip.compress(BODY), headers={**JSON, "content-encoding": "gzip"})

    async def leave() -> Message:
        client.leaves.set()
        client.has_sent = True
        _, receive = decompress(client.scope, client.receive, "gzip")
        return await receive()

    assert asyncio.run(leave()) == {"type": "http.disconnect"}
