"""Fuzz targets of tool servers, over a pipe and over HTTP: each call returns a result or an error.

A script is a list of answers: the n-th request gets the n-th answer, in which `$ID` stands for the
id of the request.
"""

import asyncio
import re
import sys
from contextlib import suppress
from pathlib import Path

from hypothesis import strategies as st

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.mcp.server import McpServer, ServerTimeouts
from proxy.mcp.specification import CallLimits, ServerSpec
from proxy.processes.restarts import RestartPolicy
from tests.fuzz.documents import VALUES, nearly
from tests.fuzz.files import broken
from tests.fuzz.targets import Target, in_file, run

_SECONDS = 0.5  # limit for each wait; the messages of a valid script arrive at once
_NO_RESTART = RestartPolicy(first_delay=600.0)
LONG_TIMEOUTS = ServerTimeouts(start=_SECONDS, call=_SECONDS, restarts=_NO_RESTART, send=_SECONDS)
_LIMITS = CallLimits(seconds=_SECONDS, result_chars=1000)
_GLANCE = 0.002
_SEPARATOR = b"\x1e"  # between two responses
_LONGEST_RESULT = 1000 + 200  # characters, including the truncation notice

_ID = re.compile(rb'"id":\s*("[^"]*"|-?\d+)')


def answer_to(request: bytes, answers: list[bytes], number: int) -> bytes:
    """Return the answer with this number, and put the id of the request into it."""
    match = _ID.search(request)
    if match is None or number >= len(answers):
        return b""
    return answers[number].replace(b'"$ID"', match[1])


# valid messages, of the protocol before and after 2026

_INFO: JsonObject = {"name": "fake", "version": "1"}
_SPEAKS: JsonObject = {
    "protocolVersion": "2025-06-18",
    "capabilities": {"tools": {}},
    "serverInfo": _INFO,
}
_SCHEMA: JsonObject = {"type": "object", "properties": {"text": {"type": "string"}}}
_TOOL: JsonObject = {
    "name": "echo",
    "description": "Repeat.",
    "inputSchema": _SCHEMA,
    "annotations": {"readOnlyHint": True},
}
_LISTED: JsonObject = {"tools": [_TOOL, {**_TOOL, "name": "other"}], "nextCursor": None}
_PARTS: list[JsonValue] = [
    {"type": "text", "text": "done"},
    {"type": "image", "data": "QUJD", "mimeType": "image/png"},
    {"type": "resource_link", "uri": "file:///a", "name": "a"},
    {"type": "resource", "resource": {"uri": "file:///a", "text": "t"}},
]
_RESULT: JsonObject = {"content": _PARTS, "isError": False, "structuredContent": {"a": 1}}


def _message(result: JsonValue) -> JsonObject:
    return {"jsonrpc": "2.0", "id": "$ID", "result": result}


_REFUSED: JsonObject = {"jsonrpc": "2.0", "id": "$ID", "error": {"code": -32601, "message": "no"}}
_NEWS: JsonObject = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed", "params": {}}
_ASKED: JsonObject = {"jsonrpc": "2.0", "id": 7, "method": "sampling/createMessage", "params": {}}


def _line(message: JsonObject) -> bytes:
    return json.dump(message) + b"\n"


_HELLO = st.just(_line(_REFUSED)) | broken(nearly(_REFUSED).map(_line))
_WELCOME = st.just(_line(_message(_SPEAKS))) | nearly(_message(_SPEAKS)).map(_line)
_LIST = (
    st.just(_line(_message(_LISTED)))
    | nearly(_message(_LISTED)).map(_line)
    | st.integers(0, 3000).map(lambda n: _line(_message({"tools": [_TOOL] * n})))
)
_RESULTS = (
    nearly(_message(_RESULT)).map(_line)
    | st.integers(0, 5000).map(lambda n: _line(_message({"content": _PARTS[:1] * n})))
    | VALUES.map(lambda value: _line(_message(value)))
    | broken(st.just(_line(_message(_RESULT))))
)
_NOISE = st.sampled_from([b"", b"\n", b"\xff\n", b"{}\n", _line(_NEWS), _line(_ASKED), b"null\n"])
GOOD_SCRIPT = _SEPARATOR.join(
    map(_line, (_REFUSED, _message(_SPEAKS), _message(_LISTED), _message(_RESULT)))
)
_SCRIPTS = st.tuples(_HELLO, _WELCOME, _LIST, _RESULTS, _NOISE).map(
    lambda made: _SEPARATOR.join([made[0], made[1], made[2], made[4] + made[3]])
)


async def _use(spec: ServerSpec, timeouts: ServerTimeouts) -> str:
    """Call the first tool of a server, if it lists any; return the result."""
    server = McpServer(spec, timeouts)
    settled = asyncio.create_task(server.wait_settled(timeouts.start))
    try:
        while not (settled.done() or server.problem):  # noqa: ASYNC110 - a problem has no event
            await asyncio.sleep(_GLANCE)
        for tool in (server.tools or ())[:1]:
            ended = await server.call(tool.tool.name, {"text": "Hi"}, _LIMITS, {})
            assert 0 < len(ended.text) <= _LONGEST_RESULT
            return ended.text
        return ""
    finally:
        settled.cancel()
        server.stop()
        await server.wait_closed()


# over a pipe

_PROGRAM = Path(__file__).with_name("scripted_tool_server.py")


def judge_pipe(data: bytes, timeouts: ServerTimeouts = LONG_TIMEOUTS) -> str:
    """Start a program that answers with a script, and call its tool; returns the result."""
    script = in_file("script", data)
    command = (sys.executable, "-S", "-E", str(_PROGRAM), str(script))
    return run(_use(ServerSpec("fake", command=command, tools=("*",)), timeouts))


# over HTTP: as JSON, as events, or with a raw head

_KINDS = (b"application/json", b"text/event-stream", b"")


def judge_http(data: bytes, timeouts: ServerTimeouts = LONG_TIMEOUTS) -> str:
    """Serve a script as JSON, as events or as raw bytes; return the result of a call.

    The first byte of the input selects the form.
    """
    kind = _KINDS[data[0] % len(_KINDS)] if data else _KINDS[0]
    answers = data[1:].split(_SEPARATOR)
    number = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal number
        with suppress(OSError, EOFError, ValueError, asyncio.LimitOverrunError):
            head = await reader.readuntil(b"\r\n\r\n")
            match = re.search(rb"content-length: (\d+)", head.lower())
            body = await reader.readexactly(int(match[1])) if match else b""
            if not head.startswith(b"POST") or b'"id"' not in body:
                writer.write(b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n")
            else:
                writer.write(_response(kind, answer_to(body, answers, number)))
                number += 1
            await writer.drain()
        writer.close()

    async def play() -> str:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        try:
            spec = ServerSpec("fake", f"http://127.0.0.1:{port}/mcp", tools=("*",))
            return await _use(spec, timeouts)
        finally:
            server.close()

    return run(play())


def _response(kind: bytes, answer: bytes) -> bytes:
    if not kind:
        return answer
    if kind == b"text/event-stream":
        answer = b"".join(b"data: " + line + b"\n\n" for line in answer.splitlines())
    size = f"{len(answer)}".encode()
    return b"HTTP/1.1 200 OK\r\ncontent-type: %s\r\ncontent-length: %s\r\n\r\n%s" % (
        kind,
        size,
        answer,
    )


TARGETS = (
    Target("tool servers, pipe", _SCRIPTS, judge_pipe, is_guided=False),
    Target(
        "tool servers, http",
        st.tuples(st.integers(0, 1), _SCRIPTS).map(lambda made: bytes([made[0]]) + made[1]),
        judge_http,
        is_guided=False,
    ),
)
