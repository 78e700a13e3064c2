"""Functions that return the stream events of llama-server."""

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue

ID = "chatcmpl-of-the-backend"
CREATED = 1_700_000_123
MODEL = "tiny-model.gguf"
FINGERPRINT = "b1-abcdef"
USAGE: JsonObject = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}
DONE = b"data: [DONE]\n\n"


def event(value: JsonValue) -> bytes:
    """Return a server-sent event."""
    return b"data: " + json.dump(value) + b"\n\n"


def part(choices: list[JsonValue], **others: JsonValue) -> bytes:
    """Return a chunk with the identity of the backend."""
    chunk: JsonObject = {
        "choices": choices,
        "created": CREATED,
        "id": ID,
        "model": MODEL,
        "system_fingerprint": FINGERPRINT,
        "object": "chat.completion.chunk",
    }
    return event({**chunk, **others})


def delta(content: JsonObject) -> bytes:
    """Return a chunk with a delta."""
    return part([{"finish_reason": None, "index": 0, "delta": content}])


START = delta({"role": "assistant", "content": None})


def text(*pieces: str) -> bytes:
    """Return text deltas."""
    return b"".join(delta({"content": piece}) for piece in pieces)


def end(reason: str = "stop") -> bytes:
    """Return the end of a reply: finish reason, usage and `[DONE]`."""
    finish = part([{"finish_reason": reason, "index": 0, "delta": {}}])
    return finish + part([], usage=USAGE) + DONE


def says(*pieces: str, reason: str = "stop") -> bytes:
    """Return a text reply."""
    return START + text(*pieces) + end(reason)


def call_delta(
    name: str, *arguments: str, index: int = 0, call_id: str | None = "call_backend"
) -> bytes:
    """Return the deltas of a structured call, with its arguments in pieces."""
    head: JsonObject = {"name": name, "arguments": ""}
    first: JsonObject = {"index": index, "type": "function", "function": head}
    if call_id is not None:
        first["id"] = call_id
    rest: list[JsonObject] = [
        {"index": index, "function": {"arguments": piece}} for piece in arguments
    ]
    return b"".join(delta({"tool_calls": [call]}) for call in [first, *rest])


def calls(name: str, *arguments: str) -> bytes:
    """Return a reply of one structured call, with its arguments in pieces."""
    return START + call_delta(name, *arguments) + end("tool_calls")
