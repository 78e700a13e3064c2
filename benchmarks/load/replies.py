"""The replies of the mock backend, in the format of llama-server. Pure, cached functions.

A mark in a message selects the reply: `[[prose;tokens=200;delay_ms=5]]`, `[[call]]` (one short call
of `get_weather`) or `[[arguments;tokens=10000]]` (one call of `write_file` with a long text).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue

MODEL = "mock.gguf"
CREATED = 1_700_000_000
RESPOND = "respond"
WORD = "word"

# In a slow stream, each token is a time stamp: the time at which it is sent, in microseconds of the
# monotonic clock, which all processes on the machine share. From this, the client computes the
# delay. In a rendered event, zeros take the place of the time stamp.
STAMP_DIGITS = 15
STAMP = b"%%0%dd" % STAMP_DIGITS
_PLACEHOLDER = "0" * STAMP_DIGITS

_TOOLS = {"call": "get_weather", "arguments": "write_file"}
_SHORT_CALL = ("{", '"city"', ":", '"', "Paris", '"', ",", '"days"', ":", "3", "}")
DONE = b"data: [DONE]\n\n"


@dataclass(frozen=True, slots=True)
class Behavior:
    """The kind of a reply, its length in tokens, and the delay of each token."""

    kind: str
    tokens: int = len(_SHORT_CALL)
    delay_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class Event:
    """A server-sent event; if it has a second part, a time stamp is inserted between the parts."""

    before: bytes
    after: bytes = b""


@dataclass(frozen=True, slots=True)
class Reply:
    """A rendered stream: its start, an event for each token, and its end."""

    start: tuple[bytes, ...]
    tokens: tuple[Event, ...]
    end: tuple[bytes, ...]


def mark_in(body: bytes) -> bytes:
    """Return the text between the brackets of the last mark; "prose" if there is no mark."""
    start = body.rfind(b"[[")
    return b"prose" if start < 0 else body[start + 2 : body.find(b"]]", start)]


@lru_cache
def behavior_of(mark_text: bytes) -> Behavior:
    """Read the text between the brackets of a mark; raises ValueError."""
    kind, *settings = mark_text.decode().split(";")
    if kind != "prose" and kind not in _TOOLS:
        raise ValueError(f"the mock backend knows no {kind!r}")
    values = dict(setting.split("=", 1) for setting in settings)
    default = Behavior(kind)
    tokens, delay = values.get("tokens", default.tokens), values.get("delay_ms", 0)
    return Behavior(kind, int(tokens), float(delay))


def mark(behavior: Behavior) -> str:
    return f"[[{behavior.kind};tokens={behavior.tokens};delay_ms={behavior.delay_ms:g}]]"


@lru_cache
def streamed(behavior: Behavior, *, responds: bool, has_usage: bool) -> Reply:
    """Render a stream; if `responds`, prose is an argument of the `respond` tool."""
    name = _tool(behavior, responds=responds)
    opening, closing = _envelope(behavior, responds=responds)
    start = [chunk({"role": "assistant", "content": None})]
    end = [chunk({}, _reason(name))]
    if name is not None:
        start.append(chunk(_call_delta({"name": name, "arguments": opening}, is_first=True)))
    if closing:
        end.insert(0, chunk(_call_delta({"arguments": closing})))
    deltas: list[JsonObject] = [
        {"content": piece} if name is None else _call_delta({"arguments": piece})
        for piece in _tokens(behavior)
    ]
    if has_usage:
        last = {**members("chat.completion.chunk"), "usage": _usage(behavior)}
        end.append(event_of({"choices": [], **last}))
    return Reply(tuple(start), tuple(map(_event, deltas)), (*end, DONE))


@lru_cache
def whole(behavior: Behavior, *, responds: bool) -> bytes:
    """Render a response that is not streamed; its time stamps are `%015d`."""
    name = _tool(behavior, responds=responds)
    opening, closing = _envelope(behavior, responds=responds)
    text = f"{opening}{''.join(_tokens(behavior))}{closing}"
    message: JsonObject = {"role": "assistant", "content": text if name is None else None}
    if name is not None:
        message |= _call_delta({"name": name, "arguments": text}, is_first=True)
    choice: JsonObject = {"index": 0, "message": message, "finish_reason": _reason(name)}
    usage = _usage(behavior)
    body = json.dump({**members("chat.completion"), "choices": [choice], "usage": usage})
    return body.replace(_PLACEHOLDER.encode(), STAMP)


def _tool(behavior: Behavior, *, responds: bool) -> str | None:
    return RESPOND if responds else _TOOLS.get(behavior.kind)


def _envelope(behavior: Behavior, *, responds: bool) -> tuple[str, str]:
    """Return the text before and after the tokens of a call; it is sent without delay."""
    if responds:
        return '{"message":"', '"}'
    return ('{"path":"notes.txt","text":"', '"}') if behavior.kind == "arguments" else ("", "")


def _tokens(behavior: Behavior) -> Iterator[str]:
    """Yield the text that each token adds to the content or to the arguments."""
    if behavior.kind == "call":
        yield from _SHORT_CALL
        return
    for number in range(behavior.tokens):
        if behavior.kind == "arguments":
            yield _written(number)
        else:
            yield f" {_PLACEHOLDER}" if behavior.delay_ms else _word(number)


def _word(number: int) -> str:
    """Return a token that differs from its neighbors.

    LiteLLM ends a stream that has a hundred equal tokens in a row.
    """
    return f" {WORD}{number % 10}"


def _written(number: int) -> str:
    """Return a token of a text with line breaks and quotation marks."""
    return {6: rf" \"{WORD}\"", 11: rf" {WORD}\n"}.get(number % 12, _word(number))


def _call_delta(function: JsonObject, *, is_first: bool = False) -> JsonObject:
    call: JsonObject = {"index": 0, "function": function}
    if is_first:
        call |= {"id": "call_mock", "type": "function"}
    return {"tool_calls": [call]}


def _event(delta: JsonObject) -> Event:
    before, zeros, after = chunk(delta).partition(_PLACEHOLDER.encode())
    return Event(before, after) if zeros else Event(before)


def chunk(delta: JsonObject, reason: str | None = None) -> bytes:
    choice: JsonObject = {"finish_reason": reason, "index": 0, "delta": delta}
    return event_of({"choices": [choice], **members("chat.completion.chunk")})


def _reason(name: str | None) -> str:
    return "stop" if name is None else "tool_calls"


def _usage(behavior: Behavior) -> JsonObject:
    tokens = behavior.tokens
    return {"prompt_tokens": 1000, "completion_tokens": tokens, "total_tokens": 1000 + tokens}


def members(kind: str) -> JsonObject:
    """Return the members of every response and chunk, except `choices`."""
    return {
        "created": CREATED,
        "id": "chatcmpl-mock",
        "model": MODEL,
        "system_fingerprint": "b1-mock",
        "object": kind,
    }


def event_of(value: JsonValue) -> bytes:
    return b"data: " + json.dump(value) + b"\n\n"
