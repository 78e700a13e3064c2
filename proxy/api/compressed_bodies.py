"""Decompresses request bodies (RFC 9110, section 8.4) while they arrive, within bounds.

    Content-Encoding: gzip     one member (RFC 1952)
    Content-Encoding: zstd     one frame (RFC 8878) with a window of at most 8 MiB (RFC 9659)

Codex compresses its requests with zstd. 32 kB can expand to 32 MiB. Therefore, the body is
decompressed in small parts: as soon as the parts exceed the maximum size of a body, the reader
stops.
"""

import asyncio
import sys
import zlib
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Protocol

from starlette.types import Message, Receive, Scope

from proxy import bounds
from proxy.api.client_connection import with_headers
from proxy.errors import InvalidRequest

HEADER = "content-encoding"
_PART_BYTES = 256 * bounds.KIB  # decompressed in about 1 ms
_WINDOW_LOG = 23  # 8 MiB
# headers that describe the compressed body
_DESCRIBING = frozenset({b"content-encoding", b"content-length"})


class _Decompressor(Protocol):
    """Decompresses one stream, as the classes of Python's standard library do."""

    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


class _Gzip:
    """zlib with the interface of the other decompressors.

    They keep unread input; zlib returns it, so this class passes it in again.
    """

    def __init__(self) -> None:
        self._stream = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)

    @property
    def eof(self) -> bool:
        return self._stream.eof

    @property
    def unused_data(self) -> bytes:
        return self._stream.unused_data

    def decompress(self, data: bytes, max_length: int, /) -> bytes:
        return self._stream.decompress(self._stream.unconsumed_tail + data, max_length)


def _gzip() -> tuple[_Decompressor, type[Exception]]:
    return _Gzip(), zlib.error


def _zstd() -> tuple[_Decompressor, type[Exception]]:
    """Create a decompressor with a limited window, because it is allocated before data is read."""
    # imported for the first compressed request, because most clients send none
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    window: dict[int, int] = {zstd.DecompressionParameter.window_log_max: _WINDOW_LOG}
    return zstd.ZstdDecompressor(options=window), zstd.ZstdError


# decompressors by the name of the coding, each with the error that it raises for damaged data
_DECOMPRESSORS: Mapping[str, Callable[[], tuple[_Decompressor, type[Exception]]]] = (
    MappingProxyType({"gzip": _gzip, "x-gzip": _gzip, "zstd": _zstd})
)


def is_compressed(headers: Mapping[str, str]) -> bool:
    """Return whether the body is compressed in a supported coding."""
    return headers.get(HEADER, "").strip().lower() in _DECOMPRESSORS


def decompress(scope: Scope, receive: Receive, coding: str) -> tuple[Scope, Receive]:
    """Return the request as if its body had been sent uncompressed, in chunks."""
    headers = [pair for pair in scope["headers"] if pair[0] not in _DESCRIBING]
    body = _Body(receive, *_DECOMPRESSORS[coding.strip().lower()]())
    return with_headers(scope, headers), body.receive


class _Body:
    """The body of one request; `receive` raises `InvalidRequest` if the body is damaged."""

    def __init__(self, receive: Receive, stream: _Decompressor, error: type[Exception]) -> None:
        self._receive = receive
        self._stream = stream
        self._error = error
        self._input = b""
        self._has_more_input = True
        self._has_more_output = False
        self._bytes_in = self._bytes_out = 0

    async def receive(self) -> Message:
        while self._has_more_input or self._has_more_output:
            if not self._has_more_output:
                message = await self._receive()
                if message["type"] != "http.request":
                    return message
                self._input = message.get("body", b"")
                self._has_more_input = message.get("more_body", False)
                self._bytes_in += len(self._input)
            part = self._next_part()
            is_over = not (self._has_more_input or self._has_more_output)
            if part or is_over:
                # Let other tasks run. If the whole body has already arrived, no other await of this
                # loop suspends the task.
                await asyncio.sleep(0)
                return {"type": "http.request", "body": part, "more_body": not is_over}
        return await self._receive()

    def _next_part(self) -> bytes:
        source, self._input = self._input, b""
        try:
            if self._stream.eof and source:
                raise ValueError("more than one stream")
            part = b"" if self._stream.eof else self._stream.decompress(source, _PART_BYTES)
        except (ValueError, self._error) as error:
            raise _damage_error() from error
        self._bytes_out += len(part)
        # after a full part, the decompressor may have more output without any further input
        self._has_more_output = len(part) == _PART_BYTES and not self._stream.eof
        is_cut = not (self._has_more_input or self._has_more_output or self._stream.eof)
        # Empty blocks and frames take time, but produce no output, so the limit on the decompressed
        # size never stops them; this check does.
        is_idle = self._bytes_in > self._bytes_out + bounds.FRAMING_BYTES
        if self._stream.unused_data or is_cut or (is_idle and not self._has_more_output):
            raise _damage_error()
        return part


def _damage_error() -> InvalidRequest:
    problem = "The compressed body is damaged. Send one complete stream, or no compression."
    return InvalidRequest(problem, HEADER)
