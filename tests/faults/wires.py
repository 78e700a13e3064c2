"""Replies in the protocols of OpenAI and Ollama, complete and broken."""

from dataclasses import dataclass

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from tests.fakes import sse
from tests.faults.proxies import Wire


def _completion(reason: str, **content: JsonValue) -> bytes:
    choice: JsonObject = {
        "index": 0,
        "finish_reason": reason,
        "message": {"role": "assistant", **content},
    }
    return json.dump({"object": "chat.completion", "choices": [choice]})


_FUNCTION: JsonObject = {"name": "get_weather", "arguments": '{"city": "Paris"}'}
_CALLS: list[JsonValue] = [{"id": "call_1", "type": "function", "function": _FUNCTION}]

# replies that are not streamed
COMPLETION = _completion("stop", content="It is sunny.")
CALL = _completion("tool_calls", content=None, tool_calls=_CALLS)


@dataclass(frozen=True)
class Replies:
    """The replies of a backend; `begun` and `half_call` are incomplete."""

    begun: bytes
    more: bytes
    end: bytes
    half_call: bytes
    sign_of_life: bytes

    @property
    def reply(self) -> bytes:
        """A complete reply: "It is sunny."."""
        return self.begun + self.more + self.end


def line(message: JsonObject, **others: JsonValue) -> bytes:
    """Return a line of Ollama."""
    content: JsonObject = {"role": "assistant", "content": "", **message}
    plain: JsonObject = {"model": "m", "created_at": "2026-11-21T12:00:00Z", "message": content}
    return json.dump({**plain, "done": False, **others}) + b"\n"


def ended(prompt: int = 11, reason: str = "stop") -> bytes:
    """Return the last line of Ollama."""
    return line({}, done=True, done_reason=reason, prompt_eval_count=prompt, eval_count=7)


_CALL: JsonObject = {
    "id": "call_1",
    "function": {"index": 0, "name": "get_weather", "arguments": {"city": "Paris"}},
}
_PROGRESS: JsonObject = {"total": 9000, "cache": 0, "processed": 512, "time_ms": 5}

REPLIES = {
    Wire.OPENAI: Replies(
        sse.START + sse.text("It is"),
        sse.text(" sunny."),
        sse.end(),
        sse.START + sse.call_delta("get_weather", '{"city": "Paris"}'),
        sse.part([], prompt_progress=_PROGRESS),
    ),
    Wire.OLLAMA: Replies(
        line({"content": "It is"}),
        line({"content": " sunny."}),
        ended(),
        line({"tool_calls": [_CALL]}),
        b"\n",
    ),
}
