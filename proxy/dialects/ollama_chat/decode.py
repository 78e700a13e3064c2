"""Reader of replies and errors of Ollama.

    {"model": "m", "message": {"role": "assistant", "content": "Hi"}, "done": false}
    {"model": "m", "message": {"content": ""}, "done": true, "done_reason": "stop", "eval_count": 5}
    -> ReplyStarted(model="m"), TextDelta("Hi"), UsageReported({...}), ReplyFinished("stop")

Each call arrives complete. Depending on Ollama's parser, it is in the last line or in an earlier
line.
"""

from proxy.conversation import json, replies
from proxy.conversation.endings import CALLS, STOP, ending_of
from proxy.conversation.json import JsonObject, JsonValue
from proxy.dialects.lenient_json import as_count, as_list, as_text, write_usage
from proxy.dialects.openai_chat.replies import ReplyPart, StreamedError
from proxy.dialects.openai_chat.replies import decode_error as decode_plain_error
from proxy.dialects.raw_json import kind

# measured by Ollama, in nanoseconds
DURATIONS = ("total_duration", "load_duration", "prompt_eval_duration", "eval_duration")


class LineReader:
    """Converts the lines of one reply.

    `feed` and `finish` raise ValueError for an invalid reply. Lines after the reply are ignored.
    """

    def __init__(self) -> None:
        self._is_started = False
        self._is_ended = False
        self._calls = 0
        self._ids: set[str] = set()
        self._logprobs: list[JsonValue] = []

    def feed(self, line: bytes) -> list[ReplyPart]:
        if self._is_ended:
            return []
        chunk = json.parse(line)
        if not isinstance(chunk, dict):
            raise ValueError(f"a line must be an object, not {kind(chunk)}")
        if "error" in chunk:
            self._is_ended = True
            return [StreamedError(decode_error(line))]
        message = chunk.get("message")
        if not isinstance(message, dict):
            raise ValueError("a line has no message")
        parts = self._start(chunk)
        self._read(message, chunk.get("logprobs"), parts)
        if chunk.get("done") is True:
            self._end(chunk, parts)
        return parts

    def finish(self) -> list[ReplyPart]:
        if not self._is_ended:
            raise ValueError("the reply ended before it was complete")
        return []

    def _start(self, chunk: JsonObject) -> list[ReplyPart]:
        if self._is_started:
            return []
        self._is_started = True
        return [replies.ReplyStarted(model=as_text(chunk.get("model")) or None)]

    def _read(self, message: JsonObject, logprobs: JsonValue, parts: list[ReplyPart]) -> None:
        if thoughts := as_text(message.get("thinking")):
            parts.append(replies.ReasoningDelta(thoughts))
        self._logprobs += map(_logprob, as_list(logprobs))
        if text := as_text(message.get("content")):
            logprob: JsonValue = {"content": self._logprobs} if self._logprobs else None
            self._logprobs = []
            parts.append(replies.TextDelta(text, logprob))
        calls = message.get("tool_calls") or []
        if not isinstance(calls, list):
            raise ValueError(f"tool_calls must be an array, not {kind(calls)}")
        for call in calls:
            parts += self._read_call(call)

    def _read_call(self, call: JsonValue) -> list[ReplyPart]:
        if not isinstance(call, dict) or not isinstance(function := call.get("function"), dict):
            raise ValueError("a tool call has no function")
        number, self._calls = self._calls, self._calls + 1
        arguments = function.get("arguments")
        text = arguments if isinstance(arguments, str) else json.dump_text(arguments or {})
        # an id that was already used counts as missing (F47), and the accepted call gets a new id
        call_id = as_text(call.get("id"))
        is_new = bool(call_id) and call_id not in self._ids
        self._ids.add(call_id)
        return [
            replies.ToolCallStarted(
                number, call_id if is_new else None, as_text(function.get("name"))
            ),
            replies.ToolCallArgumentsDelta(number, text),
        ]

    def _end(self, chunk: JsonObject, parts: list[ReplyPart]) -> None:
        self._is_ended = True
        timings: JsonObject = {name: chunk[name] for name in DURATIONS if name in chunk}
        parts.append(replies.UsageReported(_usage(chunk), timings or None))
        reason = ending_of(as_text(chunk.get("done_reason")) or STOP).reason
        # Ollama also reports "stop" for a reply with calls
        is_call = self._calls and reason == STOP
        parts.append(replies.ReplyFinished(CALLS if is_call else reason))


def decode_error(body: bytes) -> JsonObject:
    """Return the error in the body of a failure or in a line; its `message` is a string.

    Ollama's `error` is a string. An error of the model's runner is JSON within this string.
    """
    error = decode_plain_error(body)
    nested = f"{error['message']}".strip()
    return decode_plain_error(nested.encode()) if nested.startswith("{") else error


def _usage(chunk: JsonObject) -> JsonObject:
    """Return the usage; the prompt tokens include the cached tokens."""
    cached = "prompt_eval_cached_count"
    return write_usage(
        as_count(chunk.get("prompt_eval_count")),
        as_count(chunk.get("eval_count")),
        as_count(chunk[cached]) if cached in chunk else None,
    )


def _logprob(logprob: JsonValue) -> JsonValue:
    """Add the `bytes` of a token and of its alternatives, because OpenAI's clients expect them."""
    if not isinstance(logprob, dict):
        return logprob
    alternatives = [*map(_logprob, as_list(logprob.get("top_logprobs")))]
    token: JsonValue = [*as_text(logprob.get("token")).encode("utf-8", "replace")]
    return {"bytes": token, **logprob, "top_logprobs": alternatives}
