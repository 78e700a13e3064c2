"""Replies with one part of any length, as backend events."""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from proxy.conversation.replies import (
    ReasoningDelta,
    ReplyEvent,
    ReplyFinished,
    TextDelta,
    ToolCallArgumentsDelta,
    ToolCallStarted,
)

Reply: TypeAlias = Sequence[ReplyEvent]
Growing: TypeAlias = Callable[[int], Reply]

PIECE = 999  # characters per chunk
_CALL = '<tool_call>{"name":"get_weather","arguments":'
_KEY = '{"city":"x",'


def _pieces(text: str) -> list[str]:
    return [text[start : start + PIECE] for start in range(0, len(text), PIECE)]


def text_reply(text: str) -> Reply:
    return [*map(TextDelta, _pieces(text)), ReplyFinished("stop")]


def thought(text: str) -> Reply:
    return [*map(ReasoningDelta, _pieces(text)), ReplyFinished("stop")]


def called(arguments: str) -> Reply:
    """Return a call that the backend has parsed."""
    deltas = [ToolCallArgumentsDelta(0, piece) for piece in _pieces(arguments)]
    return [ToolCallStarted(0, "c", "get_weather"), *deltas, ReplyFinished("tool_calls")]


def _calls(count: int, name: str) -> Reply:
    events: list[ReplyEvent] = []
    for number in range(count):
        events.append(ToolCallStarted(number, f"c{number}", name))
        events.append(ToolCallArgumentsDelta(number, '{"city":"x"}'))
    return [*events, ReplyFinished("tool_calls")]


def _written(arguments: str) -> Reply:
    return text_reply(f"{_CALL}{arguments}}}</tool_call>")


# argument values with a part that may be repeated
_VALUES: Mapping[str, Callable[[int], str]] = {
    "one member": lambda n: _KEY + '"a":1,' * n + '"b":1}',
    "one bare member": lambda n: _KEY + "a:1," * n + '"b":1}',
    "bare members": lambda n: _KEY + "".join(f"a{i}:1," for i in range(n)) + '"b":1}',
    "members": lambda n: _KEY + "".join(f'"a{i}":1,' for i in range(n)) + '"b":1}',
    "members without an end": lambda n: _KEY + '"a":1,' * n,
    "members that contradict each other": lambda n: (
        _KEY + "".join(f'"a":{i},' for i in range(n)) + '"b":1}'
    ),
    "wrong items": lambda n: '{"city":[' + "1," * n + "1]}",
    "items of no list": lambda n: '{"city":"x","unit":[' + "1," * n + "1]}",
    "strings for a number": lambda n: '{"city":"x","days":[' + '"1",' * n + '"1"]}',
    "levels": lambda n: '{"city":' + "[" * n + "]" * n + "}",
    "levels of objects": lambda n: '{"city":' + '{"a":' * n + "1" + "}" * n + "}",
    "levels without an end": lambda n: '{"city":' + "[" * n,
    "arguments in arguments": lambda n: '{"arguments":' * n + "{}" + "}" * n,
    "characters": lambda n: '{"city":"' + "x" * n + '"}',
    "escapes": lambda n: '{"city":"' + "\\u00e9" * n + '"}',
    "quotation marks": lambda n: '{"city":"' + 'a" b' * n + '"}',
    "digits": lambda n: '{"city":"x","days":' + "1" * n + "}",
    "comments": lambda n: '{"city":' + "/**/" * n + '"x"}',
}
_TEXTS: Mapping[str, str] = {
    "calls": _CALL + '{"city":"x"}}</tool_call>\n',
    "half calls": _CALL + "{",
    "tags of a tool": "<get_weather>",
    "tags of a tool and its key": "<get_weather><city>",
    "tags with an attribute": '<get_weather city="x" ',
    "functions": "<function=get_weather>",
    "functions with a parameter": "<function=get_weather><parameter=city>",
    "invocations": '<invoke name="get_weather">',
    "marks behind names": "\nget_weather[ARGS]{",
    "recipients": " to=get_weather",
    "names behind a tag": "<tool_call>get_weather ",
    "names in JSON": ' {"name":"get_weather"',
    "names of calls": " call:get_weather{",
    "names": "get_weather ",
    "Python": "[get_weather(",
    "fences": '```json\n{"name":"get_weather"}\n```\n',
    "prose": "I will call get_weather now. ",
    "line ends": "\n",
}


def _repeated(unit: str, make: Callable[[str], Reply]) -> Growing:
    return lambda count: make(unit * count)


def _holding(value: Callable[[int], str], make: Callable[[str], Reply]) -> Growing:
    return lambda count: make(value(count))


REPLIES: Mapping[str, Growing] = {
    **{f"called: {name}": _holding(value, called) for name, value in _VALUES.items()},
    **{f"written: {name}": _holding(value, _written) for name, value in _VALUES.items()},
    **{f"said: {name}": _repeated(unit, text_reply) for name, unit in _TEXTS.items()},
    **{f"thought: {name}": _repeated(unit, thought) for name, unit in _TEXTS.items()},
    "calls": lambda n: _calls(n, "get_weather"),
    "calls by another name": lambda n: _calls(n, "functions.getWeather"),
}
