"""Measures until when an engine works for a client that has left, and a killed replica is missed.

The engine notes the moment in which its caller hangs up; it and the client have one clock.
"""

import asyncio
import contextlib
import os
import queue
import signal
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from statistics import median
from urllib.parse import urlsplit

from anyio.from_thread import start_blocking_portal

from benchmarks.faults.toxics import STREAM_HEAD, Caller, whole
from benchmarks.load import replies
from benchmarks.load.backend import DOCUMENTS
from benchmarks.load.client import Target
from benchmarks.load.figures import Figures
from benchmarks.scaling.cluster import Cluster
from proxy.conversation import json
from proxy.conversation.json import JsonObject

KEEP_ALIVE_SECONDS = 2  # as the files in deploy/ray have it
_PATIENCE_SECONDS = 60.0
_PAUSE_SECONDS = 0.02
_APART_SECONDS = 0.01  # between head and body, which most clients send apart; HAProxy minds
_SILENT = b"Say nothing."
_TALKATIVE = b"Say a lot."
_QUESTION = b"POST /v1/chat/completions "


@dataclass
class Engine:
    """An engine that speaks without end, or not at all, until its caller hangs up."""

    url: str = ""
    arrived: "queue.SimpleQueue[float]" = field(default_factory=queue.SimpleQueue)
    left: "queue.SimpleQueue[float]" = field(default_factory=queue.SimpleQueue)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        caller = Caller(reader, writer)
        try:
            while request := await caller.request():
                is_asked = request.startswith(_QUESTION)
                if is_asked and (_SILENT in request or _TALKATIVE in request):
                    await self._answer(caller, is_silent=_SILENT in request)
                    return
                await caller.send(_other_answer(request))
        finally:
            writer.close()

    async def _answer(self, caller: Caller, *, is_silent: bool) -> None:
        self.arrived.put(time.monotonic())
        speaking = asyncio.create_task(asyncio.Event().wait() if is_silent else _speak(caller))
        await caller.hang_up_seen()
        self.left.put(time.monotonic())
        speaking.cancel()
        await asyncio.gather(speaking, return_exceptions=True)


def _other_answer(request: bytes) -> bytes:
    """Answer what asks whether we are there, which can be a question."""
    if request.startswith(_QUESTION):
        wish = replies.behaviour_of(replies.wish_of(request))
        return whole(replies.whole(wish, responds=False))
    document = DOCUMENTS.get(request.split(b" ", 2)[1])
    return whole(b"{}", status="404 Not Found") if document is None else whole(json.dump(document))


async def _speak(caller: Caller) -> bool:
    await caller.send(STREAM_HEAD)
    choice: JsonObject = {"index": 0, "delta": {"content": "word "}, "finish_reason": None}
    event: JsonObject = {"id": "c", "object": "chat.completion.chunk", "choices": [choice]}
    while True:
        await caller.send_chunk(b"data: %b\n\n" % json.dump(event))
        await asyncio.sleep(_PAUSE_SECONDS)


@contextlib.contextmanager
def engine() -> Iterator[Engine]:
    """Run an engine in a thread of its own."""
    one = Engine()
    with start_blocking_portal() as portal:
        server = portal.call(asyncio.start_server, one.serve, "127.0.0.1", 0)
        one.url = "http://{}:{}".format(*server.sockets[0].getsockname())
        try:
            yield one
        finally:
            portal.call(server.close)


def of_clients(target: Target, one: Engine, times: int) -> Figures:
    """Leave streams, amid them and before their first byte; ms until the engine knew."""
    amid = [_left(target, one, _TALKATIVE) for _ in range(times)]
    before = [_left(target, one, _SILENT) for _ in range(times)]
    return {
        "left_amid": median(amid),
        "left_amid_most": max(amid),
        "left_before": median(before),
        "left_before_most": max(before),
    }


def _left(target: Target, one: Engine, wish: bytes) -> float:
    address = urlsplit(target.url)
    message: JsonObject = {"role": "user", "content": wish.decode()}
    body = json.dump({"model": "m", "stream": True, "messages": [message]})
    with socket.create_connection((str(address.hostname), int(address.port or 80))) as client:
        client.settimeout(_PATIENCE_SECONDS)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        request = target.request(body)
        client.sendall(request[: -len(body)])
        time.sleep(_APART_SECONDS)
        client.sendall(body)
        one.arrived.get(timeout=_PATIENCE_SECONDS)
        read = b""
        while wish == _TALKATIVE and b"word" not in read:
            read += client.recv(65536)
        gone = time.monotonic()
    return 1000 * (one.left.get(timeout=_PATIENCE_SECONDS) - gone)


def of_a_replica(cluster: Cluster) -> float:
    """Kill a replica; return the seconds until there are as many as before."""
    before = cluster.replicas()
    killed, process = next(iter(before.items()))
    os.kill(process, signal.SIGKILL)
    begun = time.monotonic()
    cluster.until(
        lambda: len(running := cluster.replicas()) == len(before) and killed not in running
    )
    return time.monotonic() - begun
