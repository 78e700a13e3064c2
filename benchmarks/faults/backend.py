"""A fake llama-server that injects a fault into each reply and records all generations.

The seed of the run, and the request's number in the prompt, determine the fault of a request.
"""

import asyncio
import time

import msgspec

from benchmarks.faults.ledger import Generation, Ledger
from benchmarks.faults.material import number_in
from benchmarks.faults.mixture import draw
from benchmarks.faults.toxics import Caller, whole
from benchmarks.load.backend import DOCUMENTS
from proxy.conversation import json
from proxy.conversation.json import JsonObject

SLOTS = 16
LEDGER = "/ledger"

_CHAT_REQUEST = b"POST /v1/chat/completions "
_NOT_FOUND = whole(b"{}", status="404 Not Found")


class FaultyBackend:
    """A server for a run with this seed; the servers of one model share a `ledger`."""

    def __init__(self, seed: int, ledger: Ledger | None = None) -> None:
        self._seed = seed
        self._ledger = Ledger() if ledger is None else ledger
        properties: JsonObject = {**DOCUMENTS[b"/props"], "total_slots": SLOTS}
        self._documents = {
            path.decode(): whole(json.dump(document))
            for path, document in {**DOCUMENTS, b"/props": properties}.items()
        }

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a connection until the client or a fault closes it."""
        caller = Caller(reader, writer)
        self._ledger.connections += 1
        try:
            while not writer.is_closing() and (request := await caller.request()):
                caller.requests.clear()
                if request.startswith(_CHAT_REQUEST):
                    await self._play(caller, request)
                else:
                    await self._show(caller, request.split(b" ", 2)[1].decode())
        except (OSError, asyncio.IncompleteReadError):  # the client has disconnected
            pass
        finally:
            self._ledger.connections -= 1
            writer.close()

    async def _play(self, caller: Caller, request: bytes) -> None:
        number = number_in(request)
        if number is None:
            await caller.send(_NOT_FOUND)
            return
        generation = Generation(time.monotonic())
        generations = self._ledger.generations.setdefault(number, [])
        generations.append(generation)
        _, plan = draw(self._seed, number)
        try:
            if plan.plays:
                await plan.plays[min(len(generations), len(plan.plays)) - 1](caller)
            else:
                await caller.send(_NOT_FOUND)
        finally:
            generation.ended = time.monotonic()

    async def _show(self, caller: Caller, path: str) -> None:
        if path == LEDGER:
            await caller.send(whole(msgspec.json.encode(self._ledger)))
        else:
            await caller.send(self._documents.get(path, _NOT_FOUND))


async def start(port: int, seed: int) -> asyncio.Server:
    """Listen on a local port; 0 selects a free port."""
    return await asyncio.start_server(FaultyBackend(seed).serve, "127.0.0.1", port, backlog=1024)


async def serve(port: int, seed: int) -> None:
    server = await start(port, seed)
    await server.serve_forever()
