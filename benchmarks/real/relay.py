"""A relay between an arm and the engine; it counts generations in the same way for each arm."""

import asyncio
import contextlib
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

# llama-server's `/v1/chat/completions`, `/completion`, `/v1/messages` and their relatives
_GENERATION = re.compile(rb"POST \S*(?:completions?|messages|responses) HTTP/1\.1\r\n")
_SIZE = 65536


@dataclass(slots=True)
class Relay:
    """The address of the relay, and the number of requested generations."""

    url: str = ""
    generations: int = 0


@asynccontextmanager
async def counting_relay(engine_url: str) -> AsyncGenerator[Relay, None]:
    """Forward the bytes of every connection to the engine and back."""
    engine, relay = urlsplit(engine_url), Relay()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        engine_reader, engine_writer = await asyncio.open_connection(engine.hostname, engine.port)
        back = asyncio.create_task(_copy(engine_reader, writer))
        # when the client disconnects, the engine's connection is closed, too, so the engine stops
        await _copy(reader, engine_writer, relay)
        back.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await back

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        relay.url = f"http://{host}:{port}"
        yield relay


async def _copy(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, relay: Relay | None = None
) -> None:
    try:
        while piece := await reader.read(_SIZE):
            # clients send a request's first line in one piece, at the start of the piece
            if relay is not None and _GENERATION.match(piece):
                relay.generations += 1
            writer.write(piece)
            await writer.drain()
    except OSError:
        pass  # the client or the engine has reset the connection
    finally:
        writer.close()
