"""A client that leaves, and one that waits: on real sockets, with events instead of sleeps."""

import asyncio

import httpx
import pytest

from proxy.api.app import Serving
from proxy.api.streaming import Pace
from proxy.conversation import json
from tests.fakes.http_chat import ask, request, says, temper, whole
from tests.fakes.questions import chunk, stream
from tests.fakes.scripted_server import CHAT, Played, ScriptedServer

SOON = 5.0
BEGUN = stream(chunk({"role": "assistant"}), chunk({"content": "It is"}), done=False)


async def leave(client: httpx.AsyncClient, last: Played, body: json.JsonObject) -> None:
    """Ask, wait until the backend works on `last`, and close the connection."""
    asking = asyncio.create_task(client.post(CHAT, json=body))
    async with asyncio.timeout(SOON):
        await last.has_arrived.wait()
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        await last.has_lost_its_client.wait()


@pytest.mark.parametrize("is_stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize(
    "pieces", [[None], [BEGUN, None]], ids=["before the first token", "in the middle"]
)
def test_a_client_that_leaves_cancels_the_generation(
    is_stream: bool, pieces: list[bytes | None]
) -> None:
    async def run() -> int:
        played = Played(pieces)
        upstream = ScriptedServer(played, says("never asked for"))
        async with temper(upstream) as client:
            await leave(client, played, request(stream=is_stream))
        return len(upstream.seen)

    assert asyncio.run(run()) == 1


@pytest.mark.parametrize("is_stream", [False, True], ids=["whole", "stream"])
def test_a_client_that_leaves_between_attempts_is_not_asked_for_again(is_stream: bool) -> None:
    async def run() -> int:
        second = Played([None])
        upstream = ScriptedServer(says("Prose."), second, says("never asked for"))
        async with temper(upstream) as client:
            await leave(client, second, request(stream=is_stream))
        return len(upstream.seen)

    assert asyncio.run(run()) == 2


def test_a_client_that_waits_is_kept_alive_with_chunks() -> None:
    async def run() -> list[str]:
        played = Played([None, *whole(chunk({"content": "Hi"}), chunk({}, "stop")).pieces])
        serving = Serving(pace=Pace(keep_alive=0.02))
        lines: list[str] = []
        async with temper(ScriptedServer(played), serving) as client:
            body = request(stream=True, tools=None)
            async with client.stream("POST", CHAT, json=body) as response:
                async for line in response.aiter_lines():
                    lines += [line] if line else []
                    if len(lines) == 3:
                        played.gate.set()
        return lines

    first, second, third, *rest = asyncio.run(run())
    assert '"delta":{"role":"assistant","content":""}' in first
    assert '"delta":{}' in second
    assert '"delta":{}' in third
    assert "id:" not in {line[:3] for line in rest}
    assert rest[-1] == "data: [DONE]"
    assert sum('"role"' in line for line in rest) == 0


def test_a_server_that_is_told_to_stop_lets_streams_end() -> None:
    async def run() -> bool:
        played = Played([BEGUN, None, *says(" over.").pieces[1:]])
        async with temper(ScriptedServer(played)) as client:
            asking = asyncio.create_task(ask(client, request(tools=None), is_stream=True))
            await played.has_arrived.wait()
            played.gate.set()
            return (await asking).is_done

    assert asyncio.run(run())
