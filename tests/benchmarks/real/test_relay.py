"""The relay between Temper and the engine, which counts the generations."""

import asyncio

import httpx

from benchmarks.real.relay import counting_relay
from tests.timeouts import until


async def test_generations_are_counted_and_everything_is_forwarded() -> None:
    is_gone = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await reader.readline():
            while await reader.readline() not in (b"\r\n", b""):
                pass
            if b"/slow" in head:
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nfirst")
                await reader.read()
                is_gone.set()
                break
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as engine:
        port = engine.sockets[0].getsockname()[1]
        async with (
            counting_relay(f"http://127.0.0.1:{port}") as relay,
            httpx.AsyncClient(base_url=relay.url, trust_env=False) as client,
        ):
            for path in ("/v1/chat/completions", "/completion", "/tokenize", "/apply-template"):
                assert (await client.post(path)).text == "ok"
            assert (await client.get("/v1/models")).text == "ok"
            assert relay.generations == 2
            async with client.stream("POST", "/slow/v1/chat/completions"):
                pass  # the client disconnects at once, and so must the relay
            await until(is_gone.is_set)
            assert relay.generations == 3
