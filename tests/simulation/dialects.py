"""Conversion of chat completion requests to other API dialects, and strict response readers.

A stream must end exactly once: an event after the end, or after an error, is a problem. Blocks and
items must be opened, filled and closed in order.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Literal, TypeAlias

import httpx

from benchmarks.faults.demands import Call, Received
from benchmarks.faults.reading import read_body, read_stream
from benchmarks.load.languages import CHAT, DIALECTS
from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.dialects.lenient_json import as_object
from temper_evals.scenarios.worlds import objects_in

Dialect: TypeAlias = Literal["chat", "messages", "responses", "ollama"]

_MEMBERS = frozenset({"model", "messages", "stream", "stream_options", "temperature", "tools"})
_REASONS = {"end_turn": "stop", "tool_use": "tool_calls", "max_tokens": "length"}


class _Malformed(ValueError):
    """A response that violates the specification of its dialect."""


def is_convertible(body: bytes) -> bool:
    """Return whether a chat completion request has only members that every dialect has."""
    return as_object(json.parse(body)).keys() <= _MEMBERS


def convert(dialect: Dialect, body: bytes) -> tuple[str, bytes]:
    """Return the path and the body of the same request in another dialect."""
    if dialect == "chat":
        return CHAT.path, body
    language = DIALECTS[dialect]
    request: JsonObject = {"tools": [], **as_object(json.parse(body))}
    return language.path, json.dump(language.convert(request))


def read(dialect: Dialect, response: httpx.Response) -> Received:
    """Read a complete response."""
    kind = response.headers.get("content-type", "").partition(";")[0]
    is_stream = kind in ("text/event-stream", "application/x-ndjson")
    if dialect == "chat":
        report = {
            name.removeprefix("x-temper-"): value
            for name, value in response.headers.items()
            if name.startswith("x-temper-")
        }
        content = response.content
        return (
            read_stream(content) if is_stream else read_body(response.status_code, content, report)
        )
    seen = Received(response.status_code, is_stream=is_stream)
    whole, stream = _READERS[dialect]
    try:
        if is_stream:
            stream(seen, _events(kind, response.content))
        elif response.status_code != 200:
            document = as_object(json.parse(response.content))
            seen.error = _error(document.get("error"))
        else:
            whole(seen, as_object(json.parse(response.content)))
    except (ValueError, KeyError) as error:
        seen.problem = f"{error!r} (the end: {response.content[-300:]!r})"
    return seen


def _events(kind: str, body: bytes) -> list[JsonObject]:
    """Return the JSON documents of a stream; comments are skipped."""
    separator = "\n\n" if kind == "text/event-stream" else "\n"
    *events, rest = body.decode().split(separator)
    if rest:
        raise _Malformed(f"half an event: {rest[:200]!r}")
    documents: list[JsonObject] = []
    for event in events:
        lines = [line for line in event.split("\n") if line and not line.startswith(":")]
        data = [line.removeprefix("data: ") for line in lines if not line.startswith("event: ")]
        if data and data != ["[DONE]"]:
            documents += objects_in([json.parse(data[0])])
    return documents


def _until_end(seen: Received, events: list[JsonObject]) -> Iterator[JsonObject]:
    """Yield the events; raises `_Malformed` at an event after the end or after an error."""
    for event in events:
        if seen.is_done or seen.error is not None:
            raise _Malformed(f"an event after the end: {event}")
        yield event


def _error(value: JsonValue) -> JsonObject:
    if isinstance(value, str) and value:
        return {"message": value}
    error = as_object(value)
    if not error.get("message"):
        raise _Malformed(f"an error without a message: {value}")
    return error


def _call(name: JsonValue, arguments: JsonValue) -> Call:
    value = json.parse(arguments) if isinstance(arguments, str) else arguments
    if not isinstance(value, dict):
        raise _Malformed(f"arguments that are not an object: {arguments!r}")
    return Call(f"{name}", value)


# Messages


def _read_blocks(seen: Received, blocks: list[JsonObject]) -> None:
    for block in blocks:
        match block["type"]:
            case "text":
                seen.text += f"{block['text']}"
            case "thinking":
                seen.thoughts += f"{block['thinking']}"
            case "tool_use":
                seen.calls.append(_call(block["name"], block["input"]))
            case kind:
                raise _Malformed(f"a block of type {kind}")


def _read_message(seen: Received, message: JsonObject) -> None:
    _read_blocks(seen, objects_in(message["content"]))
    seen.reason = _REASONS.get(f"{message['stop_reason']}", "")
    seen.is_done = bool(seen.reason)


class _MessageStream:
    """Reads the events of a Messages stream; blocks are opened, filled and closed one by one."""

    def __init__(self, seen: Received) -> None:
        self._seen = seen
        self._blocks: list[JsonObject] = []
        self._open: JsonValue = None  # the index of the open block

    def read(self, event: JsonObject) -> None:
        seen = self._seen
        match event["type"]:
            case "content_block_start" | "content_block_delta" | "content_block_stop" as kind:
                self._read_block(kind, event)
            case "message_delta":
                seen.reason = _REASONS.get(f"{as_object(event['delta'])['stop_reason']}", "")
            case "message_stop":
                seen.is_done = bool(seen.reason)
            case "error":
                seen.error = _error(event["error"])
            case _:
                pass  # message_start, ping

    def _read_block(self, kind: str, event: JsonObject) -> None:
        is_start = kind == "content_block_start"
        due = len(self._blocks) if is_start else self._open
        if event["index"] != due or (is_start and self._open is not None):
            raise _Malformed(f"a block out of its turn: {event}")
        if is_start:
            self._open = event["index"]
            self._blocks.append({**as_object(event["content_block"]), "partial": ""})
        elif kind == "content_block_stop":
            self._open = None
        else:
            _extend(self._blocks[-1], as_object(event["delta"]))

    def finish(self) -> None:
        """Collect the blocks; tool calls count only if the stop reason is `tool_use`."""
        is_called = self._seen.reason == "tool_calls"
        for block in self._blocks if is_called else ():
            block["input"] = json.parse(f"{block['partial'] or '{}'}")
        shown = [block for block in self._blocks if is_called or block["type"] != "tool_use"]
        _read_blocks(self._seen, shown)
        if self._seen.is_done and self._open is not None:
            raise _Malformed("an open block at the end")


def _read_message_stream(seen: Received, events: list[JsonObject]) -> None:
    stream = _MessageStream(seen)
    for event in _until_end(seen, events):
        stream.read(event)
    stream.finish()


def _extend(block: JsonObject, delta: JsonObject) -> None:
    for name, key in (("text", "text"), ("thinking", "thinking"), ("partial_json", "partial")):
        if name in delta:
            block[key] = f"{block.get(key, '')}{delta[name]}"


# Responses


def _read_response(seen: Received, response: JsonObject) -> None:
    for item in objects_in(response["output"]):
        match item["type"]:
            case "message":
                seen.text += "".join(f"{part['text']}" for part in objects_in(item["content"]))
            case "reasoning":
                parts = objects_in(item.get("content") or item.get("summary") or [])
                seen.thoughts += "".join(f"{part['text']}" for part in parts)
            case "function_call":
                seen.calls.append(_call(item["name"], item["arguments"]))
            case kind:
                raise _Malformed(f"an item of type {kind}")
    if response["status"] == "incomplete":
        seen.reason, seen.calls = "length", []
    else:
        seen.reason = "tool_calls" if seen.calls else "stop"
    seen.is_done = True


def _read_response_stream(seen: Received, events: list[JsonObject]) -> None:
    text = ""
    for event in _until_end(seen, events):
        match event["type"]:
            case "response.output_text.delta":
                text += f"{event['delta']}"
            case "response.completed" | "response.incomplete":
                _read_response(seen, as_object(event["response"]))
                if seen.text != text:
                    raise _Malformed(f"deltas {text!r}, whole {seen.text!r}")
            case "response.failed":
                seen.error = _error(as_object(event["response"])["error"])
            case "error":
                seen.error = _error(event.get("error") or event)
            case _:
                pass  # events of items and parts
    seen.text = text
    numbers = [event.get("sequence_number") for event in events]
    if numbers != [*range(len(numbers))]:
        raise _Malformed(f"sequence numbers {numbers}")


# Ollama


def _read_line(seen: Received, line: JsonObject) -> None:
    if "error" in line:
        seen.error = _error(line["error"])
        return
    message = as_object(line["message"])
    seen.text += f"{message.get('content') or ''}"
    seen.thoughts += f"{message.get('thinking') or ''}"
    for call in objects_in(message.get("tool_calls") or []):
        function = as_object(call["function"])
        seen.calls.append(_call(function["name"], function["arguments"]))
    if line["done"]:
        seen.is_done = True
        is_length = line["done_reason"] == "length"
        seen.reason = "length" if is_length else "tool_calls" if seen.calls else "stop"


def _read_lines(seen: Received, lines: list[JsonObject]) -> None:
    for line in _until_end(seen, lines):
        _read_line(seen, line)


_Reader: TypeAlias = Callable[[Received, JsonObject], None]
_StreamReader: TypeAlias = Callable[[Received, list[JsonObject]], None]
_READERS: Mapping[str, tuple[_Reader, _StreamReader]] = {
    "messages": (_read_message, _read_message_stream),
    "responses": (_read_response, _read_response_stream),
    "ollama": (_read_line, _read_lines),
}
