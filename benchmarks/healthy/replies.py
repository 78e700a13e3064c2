"""The healthy replies, which Temper must not change: their contents and their wire format.

A mark in a message selects the reply: `[[healthy;kind=two calls;number=7;delay_ms=2;id=7-direct]]`.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from benchmarks.healthy.material import ANSWERS, CALLS, LINES, PREAMBLES
from benchmarks.load.replies import DONE, Event, chunk, event_of, members
from benchmarks.load.replies import Reply as Rendered
from proxy.conversation import json
from proxy.conversation.json import JsonObject

PREFIX = "healthy"
LONG_TOKENS = 3_000
_TOKEN = re.compile(r"\s?\w{1,6}|\s?[^\w\s]|\s")
_PROMPT_TOKENS = 1_000


@dataclass(frozen=True, slots=True)
class ReplyChoice:
    """The kind and number of the requested reply, the delay of its tokens, and the request's id."""

    kind: str
    number: int = 0
    delay_ms: float = 0.0
    id: str = ""
    is_streamed: bool = True

    def named(self, side: str) -> str:
        """Return the id of the request to one side of the comparison."""
        return f"{self.number}-{side}"

    @property
    def mark(self) -> str:
        settings = f"kind={self.kind};number={self.number};delay_ms={self.delay_ms:g};id={self.id}"
        return f"[[{PREFIX};{settings}]]"


def read_choice(choice: bytes) -> ReplyChoice:
    """Read the text between the brackets of a mark; raises ValueError."""
    _, *settings = choice.decode().split(";")
    values = dict(setting.split("=", 1) for setting in settings)
    kind = values.get("kind", "")
    if kind not in KINDS:
        raise ValueError(f"the mock backend knows no {kind!r}")
    number, delay = int(values.get("number", 0)), float(values.get("delay_ms", 0))
    return ReplyChoice(kind, number, delay, values.get("id", ""))


@dataclass(frozen=True, slots=True)
class Call:
    """A call; the arguments are the text of the model."""

    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Reply:
    """A reply: text, then calls with the ids `call_{ids}_0`, `call_{ids}_1` and so on."""

    text: str = ""
    calls: tuple[Call, ...] = ()
    ids: str = "healthy"

    @property
    def reason(self) -> str:
        return "tool_calls" if self.calls else "stop"

    @property
    def deltas(self) -> "tuple[Delta, ...]":
        """The reply as a sequence of tokens."""
        text = (Delta("text", token) for token in tokens(self.text))
        return (*text, *(delta for index in range(len(self.calls)) for delta in self._call(index)))

    def _call(self, index: int) -> "Iterator[Delta]":
        call = self.calls[index]
        yield Delta(f"name {index}", call.name)
        for token in tokens(call.arguments):
            yield Delta(f"arguments {index}", token)


@dataclass(frozen=True, slots=True)
class Delta:
    """A token, and the channel that it belongs to, such as "text" or "arguments 0"."""

    channel: str
    text: str


def tokens(text: str) -> list[str]:
    """Divide a text into pieces that are similar to tokens."""
    return _TOKEN.findall(text)


def prose(number: int) -> Reply:
    return Reply(_numbered(ANSWERS, number))


def one_call(number: int) -> Reply:
    return Reply(calls=(_call(number),))


def two_calls(number: int) -> Reply:
    """Call two tools, or one tool with different arguments."""
    return Reply(calls=(_call(number), _call(number + 1)))


def prose_and_call(number: int) -> Reply:
    return Reply(_numbered(PREAMBLES, number), (_call(number),))


@lru_cache
def long_call(number: int) -> Reply:
    """Call `write_file` with 3,000 tokens; in every second reply, the path comes first."""
    lines_so_far, count, index = "", 0, 0
    while count < LONG_TOKENS:
        line = LINES[index % len(LINES)].replace("#", str(number + index))
        lines_so_far, count, index = lines_so_far + line, count + len(tokens(line)), index + 1
    path, text = f'"path": "part_{number}.py"', f'"text": "{lines_so_far}"'
    members_in_order = (path, text) if number % 2 == 0 else (text, path)
    return Reply(calls=(Call("write_file", f"{{{', '.join(members_in_order)}}}"),))


# In this kind of reply, the model uses the `respond` tool whenever it is offered.
RESPONDING = "an answer by `respond`"
LONG = "a 3,000-token argument"
KINDS: dict[str, Callable[[int], Reply]] = {
    "prose": prose,
    RESPONDING: prose,
    "one call": one_call,
    "two calls": two_calls,
    "prose and a call": prose_and_call,
    LONG: long_call,
}


def call_after_retry(number: int) -> Reply:
    """Return the reply to a retry that demands a call after the model had answered with text."""
    return one_call(number)


def _call(number: int) -> Call:
    name, arguments = CALLS[number % len(CALLS)]
    return Call(name, arguments.replace("#", str(number)))


def _numbered(texts: tuple[str, ...], number: int) -> str:
    return texts[number % len(texts)].replace("#", str(number))


def streamed(reply: Reply, *, responds: str = "", has_usage: bool = False) -> Rendered:
    """Render a stream; `responds` is the name of the answer tool, or "" if the answer is text."""
    start = [chunk({"role": "assistant", "content": None})]
    end = [chunk({}, "tool_calls" if responds else reply.reason)]
    deltas = [_delta_members(delta, reply) for delta in reply.deltas]
    if responds:
        start.append(chunk(_call_start(reply, 0, Call(responds, '{"message":"'))))
        deltas = [_arguments_delta(0, _escaped(delta.text)) for delta in reply.deltas]
        end.insert(0, chunk(_arguments_delta(0, '"}')))
    if has_usage:
        last: JsonObject = {"choices": [], **members("chat.completion.chunk")}
        end.append(event_of({**last, "usage": _usage(reply)}))
    events = (Event(chunk(delta)) for delta in deltas)
    return Rendered(tuple(start), tuple(events), (*end, DONE))


def whole(reply: Reply, *, responds: str = "") -> bytes:
    """Render the body of a reply that is not streamed."""
    calls: tuple[Call, ...] = reply.calls
    if responds:
        calls = (Call(responds, f'{{"message":"{_escaped(reply.text)}"}}'),)
    message: JsonObject = {"role": "assistant", "content": None if responds else reply.text or None}
    if calls:
        message["tool_calls"] = [
            _call_members(reply, index, call) for index, call in enumerate(calls)
        ]
    reason = "tool_calls" if calls else "stop"
    choice: JsonObject = {"index": 0, "message": message, "finish_reason": reason}
    body: JsonObject = {**members("chat.completion"), "choices": [choice], "usage": _usage(reply)}
    return json.dump(body)


def _delta_members(delta: Delta, reply: Reply) -> JsonObject:
    channel, _, index = delta.channel.partition(" ")
    if channel == "text":
        return {"content": delta.text}
    if channel == "name":
        return _call_start(reply, int(index), Call(delta.text, ""))
    return _arguments_delta(int(index), delta.text)


def _call_start(reply: Reply, index: int, call: Call) -> JsonObject:
    return {"tool_calls": [{"index": index, **_call_members(reply, index, call)}]}


def _arguments_delta(index: int, arguments: str) -> JsonObject:
    return {"tool_calls": [{"index": index, "function": {"arguments": arguments}}]}


def _call_members(reply: Reply, index: int, call: Call) -> JsonObject:
    function: JsonObject = {"name": call.name, "arguments": call.arguments}
    return {"id": f"call_{reply.ids}_{index}", "type": "function", "function": function}


def _escaped(text: str) -> str:
    return json.dump_text(text)[1:-1]


def _usage(reply: Reply) -> JsonObject:
    count = len(reply.deltas)
    return {
        "prompt_tokens": _PROMPT_TOKENS,
        "completion_tokens": count,
        "total_tokens": _PROMPT_TOKENS + count,
    }
