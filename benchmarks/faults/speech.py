"""Replies of a model, as the chunks that llama-server sends."""

from collections.abc import Sequence

from benchmarks.load.replies import DONE, chunk, event_of, members
from proxy.conversation import json
from proxy.conversation.json import JsonObject

START = chunk({"role": "assistant", "content": None})
USAGE: JsonObject = {"prompt_tokens": 1000, "completion_tokens": 50, "total_tokens": 1050}


def text(pieces: Sequence[str]) -> bytes:
    return b"".join(chunk({"content": piece}) for piece in pieces)


def thoughts(pieces: Sequence[str]) -> bytes:
    return b"".join(chunk({"reasoning_content": piece}) for piece in pieces)


def call(name: str, arguments: Sequence[str], *, index: int = 0) -> bytes:
    """Write the deltas of a structured call; each piece of its arguments is a delta."""
    head: JsonObject = {"name": name, "arguments": ""}
    first: JsonObject = {"index": index, "id": f"call_{index}", "type": "function"}
    rest: list[JsonObject] = [
        {"index": index, "function": {"arguments": piece}} for piece in arguments
    ]
    calls: list[JsonObject] = [{**first, "function": head}, *rest]
    return b"".join(chunk({"tool_calls": [call]}) for call in calls)


def finish(reason: str) -> bytes:
    return chunk({}, reason)


def usage() -> bytes:
    return event_of({"choices": [], **members("chat.completion.chunk"), "usage": USAGE})


def end(reason: str = "stop") -> bytes:
    """Write the end of a reply: finish reason, usage and `[DONE]`."""
    return finish(reason) + usage() + DONE


def reply(*deltas: bytes, reason: str = "stop") -> bytes:
    return START + b"".join(deltas) + end(reason)


def failure(code: int, message: str, kind: str = "server_error") -> JsonObject:
    """Return an error object of llama-server."""
    return {"error": {"code": code, "message": message, "type": kind}}


def progress() -> bytes:
    """Write a `prompt_progress` event, which llama-server sends while it reads the prompt."""
    progress_report: JsonObject = {"total": 9000, "cache": 0, "processed": 512, "time_ms": 5}
    return event_of(
        {"choices": [], **members("chat.completion.chunk"), "prompt_progress": progress_report}
    )


def completion(content: str) -> bytes:
    """Write a text reply as the response to a request that is not streamed."""
    message: JsonObject = {"role": "assistant", "content": content}
    choice: JsonObject = {"index": 0, "message": message, "finish_reason": "stop"}
    return json.dump({**members("chat.completion"), "choices": [choice], "usage": USAGE})


def pieces(content: str, size: int = 7) -> list[str]:
    """Cut a text into tokens."""
    return [content[start : start + size] for start in range(0, len(content), size)]
