"""`python -m benchmarks stalls`: how long others wait while one large request is worked on.

Temper runs in a process of its own. One client sends a body of 1 MB, or gets a reply of 5 MB, of
which one part is as long as the size allows: the shapes are those whose work the tests count in
steps (`tests/faults/test_growth.py`). Another one asks for `/healthz` every 20 ms; what counts is
its longest wait. All waits are told beside those of a quiet time, because whatever else runs on the
machine adds to them.
"""

import asyncio
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.load.candidates import REPOSITORY
from benchmarks.load.processes import free_port, started
from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.conversation.replies import (
    ReasoningDelta,
    TextDelta,
    ToolCallArgumentsDelta,
    ToolCallStarted,
)
from tests.fuzz.growing_replies import REPLIES
from tests.fuzz.growing_replies import Growing as GrowingReply
from tests.fuzz.growing_requests import CHAT, MESSAGES, RESPONSES, Growing

BODY_BYTES, REPLY_BYTES = 1_000_000, 5_000_000
MOST_SECONDS = 0.25  # that others may wait
_PAUSE = 0.02
_QUIET_SECONDS = 2.0
_START_SECONDS = 60.0
_LANGUAGES: Mapping[str, tuple[str, Mapping[str, Growing]]] = {
    "chat": ("/v1/chat/completions", CHAT),
    "messages": ("/v1/messages", MESSAGES),
    "responses": ("/v1/responses", RESPONSES),
}
_WEATHER: JsonObject = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    "required": ["city"],
}
_FUNCTION: JsonObject = {"name": "get_weather", "parameters": _WEATHER}
_ASKED: JsonObject = {
    "model": "m",
    "stream": True,
    "messages": [{"role": "user", "content": "Hi"}],
    "tools": [{"type": "function", "function": _FUNCTION}],
}
_FINE: JsonObject = {
    "choices": [{"index": 0, "message": {"content": "Fine."}, "finish_reason": "stop"}]
}


@dataclass(frozen=True, slots=True)
class Stall:
    """What one shape did to others: their longest wait, and how long it took, in seconds."""

    shape: str
    size: int
    wait: float
    seconds: float


def run(only: Sequence[str] = ()) -> int:
    """Measure every shape whose name has one of these words, and print it; 1 if one is too slow."""
    with tempfile.TemporaryDirectory() as folder:
        quiet, stalls = asyncio.run(_measure_all(Path(folder), only))
    stalls.sort(key=lambda one: one.wait, reverse=True)
    print(f"quiet: {quiet * 1000:.0f} ms")  # noqa: T201
    for one in stalls:
        told = f"{one.size:9,} bytes, {one.seconds * 1000:6.0f} ms"
        print(f"{one.wait * 1000:6.0f} ms  {one.shape} ({told})")  # noqa: T201
    return int(any(one.wait > MOST_SECONDS + quiet for one in stalls))


async def _measure_all(folder: Path, only: Sequence[str]) -> tuple[float, list[Stall]]:
    engine = _Engine()
    server = await asyncio.start_server(engine.serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    with _temper(f"http://{host}:{port}", folder) as own:
        await _wait_for(own)
        quiet = await _longest_wait(own, asyncio.create_task(asyncio.sleep(_QUIET_SECONDS)))
        stalls: list[Stall] = []
        for shape, path, body, reply in _shapes(only):
            engine.reply = reply
            begun = time.monotonic()
            wait = await _longest_wait(own, asyncio.create_task(_post(own, path, body)))
            size = len(body) if reply == _ANSWER else len(reply)
            stalls.append(Stall(shape, size, wait, time.monotonic() - begun))
    server.close()
    return quiet, stalls


def _shapes(only: Sequence[str]) -> Iterator[tuple[str, str, bytes, bytes]]:
    """Yield the name of each shape, where it is asked, its body, and the engine's answer."""

    def is_chosen(shape: str) -> bool:
        return not only or any(word in shape for word in only)

    for language, (path, table) in _LANGUAGES.items():
        for name, make in table.items():
            if is_chosen(shape := f"{language}: {name}"):
                yield shape, path, _fit(partial(_dump, make), BODY_BYTES), _ANSWER
    asked, end = json.dump(_ASKED), b"data: [DONE]\n\n"
    for name, make_reply in REPLIES.items():
        if is_chosen(shape := f"reply: {name}"):
            events = _fit(partial(_write_events, make_reply), REPLY_BYTES)
            yield shape, "/v1/chat/completions", asked, _ok("text/event-stream", events + end)


def _fit(make: Callable[[int], bytes], most: int) -> bytes:
    """Make as many of a part as so many bytes hold, or as many as it can have."""
    count = 16
    few, many = len(make(count)), len(make(2 * count))
    while few < many < most:
        count *= 2
        few, many = many, len(make(2 * count))
    return make(count + (most - few) * count // (many - few) if many > few else count)


def _dump(make: Growing, count: int) -> bytes:
    return json.dump(make(count))


def _write_events(make: GrowingReply, count: int) -> bytes:
    return b"".join(filter(None, map(_event, make(count))))


def _event(event: object) -> bytes:
    delta: JsonObject
    match event:
        case TextDelta(text):
            delta = {"content": text}
        case ReasoningDelta(text):
            delta = {"reasoning_content": text}
        case ToolCallStarted(index, call_id, name):
            function: JsonObject = {"name": name, "arguments": ""}
            delta = {"tool_calls": [{"index": index, "id": call_id, "function": function}]}
        case ToolCallArgumentsDelta(index, text):
            delta = {"tool_calls": [{"index": index, "function": {"arguments": text}}]}
        case _:
            return b""
    return b"data: " + json.dump({"choices": [{"index": 0, "delta": delta}]}) + b"\n\n"


def _ok(kind: str, body: bytes) -> bytes:
    head = f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


_ANSWER = _ok("application/json", json.dump(_FINE))
_MODELS = _ok("application/json", json.dump({"data": [{"id": "m"}]}))


class _Engine:
    """Answers every chat with the same bytes."""

    def __init__(self) -> None:
        self.reply = _ANSWER

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                lines = head.decode().lower().split("\r\n")
                sizes = [line.split(":")[1] for line in lines if line.startswith("content-length")]
                await reader.readexactly(int(sizes[0]) if sizes else 0)
                writer.write(self.reply if "/chat/completions" in lines[0] else _MODELS)
                await writer.drain()
        except (asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
            pass
        finally:
            writer.close()


@contextmanager
def _temper(backend: str, folder: Path) -> Iterator[int]:
    port = free_port()
    serve = (sys.executable, "-m", "proxy", "serve", "--backend-url", backend)
    command = (*serve, "--port", str(port))
    environment = {"PYTHONPATH": str(REPOSITORY)}
    with started(command, folder=folder, environment=environment, log=folder / "temper.log"):
        yield port


async def _wait_for(port: int) -> None:
    async with asyncio.timeout(_START_SECONDS):
        while True:
            try:
                await _health(port)
            except OSError:
                await asyncio.sleep(_PAUSE)
            else:
                return


async def _longest_wait(port: int, work: asyncio.Task[None]) -> float:
    """Ask for the health until the work is done; return the longest wait."""
    longest = 0.0
    while not work.done():
        begun = time.monotonic()
        await _health(port)
        longest = max(longest, time.monotonic() - begun)
        await asyncio.sleep(_PAUSE)
    await work
    return longest


async def _health(port: int) -> None:
    await _exchange(port, b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n")


async def _post(port: int, path: str, body: bytes) -> None:
    head = f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n"
    kind = f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    await _exchange(port, (head + kind).encode() + body)


async def _exchange(port: int, request: bytes) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    try:
        while await reader.read(2**16):
            pass
    except ConnectionError:
        pass  # refused before it was read
    finally:
        writer.close()
