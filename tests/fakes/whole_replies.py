"""Converts a streamed reply of a fake server to the body for a request without `stream`."""

from typing import cast

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue


def completion_of(stream: bytes) -> bytes | JsonObject | None:
    """Return a stream as one body, its error, or None if it is not a stream.

    If the stream has no finish reason, the end of the body is missing, too.
    """
    message: JsonObject = {"role": "assistant", "content": None}
    whole: JsonObject = {"object": "chat.completion"}
    reason: JsonValue = None
    for event in stream.split(b"\n\n"):
        if not event or event == b"data: [DONE]":
            continue
        try:
            chunk = json.parse(event.removeprefix(b"data: "))
        except ValueError:
            return None
        if not isinstance(chunk, dict) or not event.startswith(b"data: "):
            return None
        if isinstance(error := chunk.get("error"), dict):
            return error
        whole |= {
            name: chunk[name] for name in ("id", "created", "model", "usage") if name in chunk
        }
        for part in cast("list[JsonObject]", chunk.get("choices") or []):
            reason = part.get("finish_reason") or reason
            _add(message, cast("JsonObject", part.get("delta") or {}))
    choice: JsonObject = {"index": 0, "message": message, "finish_reason": reason}
    body = json.dump({**whole, "choices": [choice]})
    return body if reason else body[:-10]


def _add(message: JsonObject, delta: JsonObject) -> None:
    for name in ("content", "reasoning_content"):
        if isinstance(piece := delta.get(name), str):
            message[name] = f"{message.get(name) or ''}{piece}"
    for piece in cast("list[JsonObject]", delta.get("tool_calls") or []):
        calls = cast("list[JsonValue]", message.setdefault("tool_calls", []))
        function = cast("JsonObject", piece.get("function") or {})
        if "name" in function:
            call = {name: value for name, value in piece.items() if name != "index"}
            calls.append({**call, "function": {**function}})
        else:
            last = cast("JsonObject", cast("JsonObject", calls[-1])["function"])
            last["arguments"] = f"{last['arguments']}{function.get('arguments') or ''}"
