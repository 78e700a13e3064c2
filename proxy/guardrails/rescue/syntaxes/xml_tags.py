"""Calls as XML-like tags, whichever words a model family uses in them.

`<function=NAME><parameter=KEY>value`: Qwen3-Coder; Nemotron, Step, MiMo, Granite and Seed write
the same, and Llama 3 JSON in place of parameters. `<function name="NAME"><param name="KEY">value`:
MiniCPM, and others do it to other tags (`<tool_call name="NAME">`). `<invoke name="NAME">`, in any
namespace: DeepSeek (DSML), MiniMax, Step 3, Muse, dots and models that imitate Claude.
`<tool_call><name>NAME</name><arguments>{...}`: the envelope as tags.
`<|open|>call tool="NAME"<|sep|>`: Kimi K3. `<|tool_call:start|>NAME`: Solar Open 2.
"""

# ruff: noqa: RUF001 - the control tokens of DeepSeek and Step have a fullwidth bar

import re

from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.tools import WrittenCall
from proxy.guardrails.rescue.syntax import MOST_CALLS, Calls, NoCall, Reading, Reason, Syntax
from proxy.guardrails.rescue.syntaxes.tagged import Element, tagged_syntax
from proxy.guardrails.rescue.values.cursor import Cursor, Literals, Waiting, literals_of
from proxy.guardrails.rescue.values.reader import read_value, read_whole
from proxy.guardrails.rescue.values.scalars import Style, Value
from proxy.guardrails.rescue.values.tag_values import unescape_entities

# Functions and parameters as tags with a name attribute; the space is often missing.
FUNCTION_TAGS = tagged_syntax(
    "function_tags",
    [
        Element(
            call,
            "</function>",
            ("<param name=", "<paramname="),
            "</param>",
            others={"<parameter name=": "</parameter>"},
        )
        for call in ("<function name=", "<functionname=")
    ],
    {"<tool_call>": "</tool_call>", "<function_calls>": "</function_calls>"},
)


# Calls whose tag has the tool's name as an attribute, containing JSON or parameters.
ATTRIBUTED_TAGS = tagged_syntax(
    "attributed_tags",
    [
        Element(
            f"<{tag} name=",
            f"</{tag}>",
            ("<parameter name=", "<parameter="),
            "</parameter>",
            "<",
            others={"<param name=": "</param>", "<arg name=": "</arg>"},
        )
        for tag in ("tool_call", "function_call", "tool_use", "tool")
    ],
    {"<tool_calls>": "</tool_calls>", "<function_calls>": "</function_calls>"},
)


# Functions and parameters as tags, with or without `<tool_call>` around them.
QWEN_CODER = tagged_syntax(
    "qwen_coder",
    (
        Element(
            "<function=",
            "</function>",
            ("<parameter=", "<parameter name="),
            "</parameter>",
            "<",
            has_lines=True,
            others={"<param=": "</param>"},
        ),
    ),
    {"<tool_call>": "</tool_call>", "<seed:tool_call>": "</seed:tool_call>"},
)


_NAMESPACES = (
    *("", "antml:", "atem:", "minimax:", "steptml:"),
    *("｜DSML｜", "｜DSML｜ ", "|DSML|"),
)
_MINIMAX = "]<]minimax[>["  # one token before every tag
_WRAPPING = (
    *(f"{namespace}function_calls" for namespace in _NAMESPACES),
    *("tool_call", "tool_calls", "minimax:tool_call", "｜DSML｜tool_calls", "｜DSML｜ calls"),
    *("|DSML|tool_calls", "minimax:tool_calls", "｜DSML｜calls", "|DSML|calls"),
    "dots_function_call",
)
_INVOKE_WRAPPERS = {
    **{f"<{tag}>": f"</{tag}>" for tag in _WRAPPING},
    "<｜tool_calls_begin｜>": "<｜tool_calls_end｜>",
    f"{_MINIMAX}<tool_call>": f"{_MINIMAX}</tool_call>",
}
_INVOKE_NOISE = (
    *("<bos>", "<eos>", "<s>", "</s>"),
    *("<｜tool_call_begin｜>", "<｜tool_call_end｜>", "function<｜tool_sep｜>"),
)


def _invocation(before: str, namespace: str) -> Element:
    """Return the tags; models also close them without their namespace."""
    tags = ("invoke", "parameter") if namespace else ()
    return Element(
        f"{before}<{namespace}invoke name=",
        f"{before}</{namespace}invoke>",
        (f"{before}<{namespace}parameter name=",),
        f"{before}</{namespace}parameter>",
        f"{before}<",
        token=before,
        loose={f"</{tag}>": f"</{namespace}{tag}>" for tag in tags},
    )


# Invocations and parameters as tags with attributes, with or without a wrapper.
INVOKE = tagged_syntax(
    "invoke",
    [*(_invocation("", one) for one in _NAMESPACES), _invocation(_MINIMAX, "")],
    _INVOKE_WRAPPERS,
    _INVOKE_NOISE,
    is_empty_doubtful=True,
)


_ENVELOPES = ("tool_call", "tool_use", "function_call", "tool", "invoke")
_NAME_TAGS = Literals(f"<{tag}>" for tag in ("name", "tool_name", "function_name", "tool"))
_ARGUMENT_TAGS = Literals(
    f"<{tag}>" for tag in ("arguments", "parameters", "args", "input", "params", "tool_input")
)
_LONGEST_NAME = 200


def _read_named(cursor: Cursor, opening: str) -> Reading:
    """Read a name in a tag, and a JSON object of arguments in another."""
    yield from cursor.whitespace()
    mark = yield from cursor.one_of(_NAME_TAGS)
    name = (yield from cursor.take_until(literals_of("<"))).strip() if mark else ""
    has_end = bool(mark) and (yield from cursor.literal(_end_of(mark)))
    if not has_end or not 0 < len(name) <= _LONGEST_NAME:
        raise NoCall
    yield from cursor.whitespace()
    arguments: JsonObject = {}
    if mark := (yield from cursor.one_of(_ARGUMENT_TAGS)):
        arguments = yield from _read_object(cursor, name, _end_of(mark))
    yield from cursor.whitespace()
    is_closed = yield from cursor.literal(_end_of(opening))
    if not is_closed and not mark:
        raise NoCall
    return Calls((WrittenCall(name, arguments),), is_closed)


def _read_object(cursor: Cursor, name: str, end: str) -> Waiting[JsonObject]:
    yield from cursor.whitespace()
    value: JsonValue = {}
    if not (yield from cursor.is_next(end)):
        cursor.start_arguments(name)
        value = (yield from read_value(cursor, None, Style((end,)))).value
        cursor.end_arguments()
        yield from cursor.whitespace()
    if not (yield from cursor.literal(end)) or not isinstance(value, dict):
        raise NoCall(Reason.BROKEN)
    return value


def _end_of(mark: str) -> str:
    return f"</{mark[1:]}"


NAMED_TAGS = Syntax("named_tags", tuple(f"<{tag}>" for tag in _ENVELOPES), _read_named)

_SEPARATOR = Literals(("<|sep|>",))
_ARGUMENT = '<|open|>argument key="'
_ARGUMENT_END = Literals(("<|close|>argument<|sep|>",))
_KIMI_CALL = '<|open|>call tool="'
_KIMI_CALL_END = "<|close|>call<|sep|>"
_HEAD = re.compile(r'(?P<name>[^"]+)"(?P<attributes>(?:\s+[\w:-]+="[^"]*")*)\s*')


def _read_kimi(cursor: Cursor, opening: str) -> Reading:
    """Read elements made of control tokens, an argument each with its type."""
    name, _ = yield from _read_head(cursor)
    arguments: JsonObject = {}
    while name and (yield from cursor.literal(_ARGUMENT)):
        key, attributes = yield from _read_head(cursor)
        text = yield from cursor.take_until(_ARGUMENT_END)
        closer = yield from cursor.one_of(_ARGUMENT_END)
        runs_on = _ARGUMENT in text or _KIMI_CALL in text  # its own closing mark is missing
        if not key or not closer or runs_on:
            raise NoCall(Reason.BROKEN)
        arguments[key] = _parse_typed(text, attributes)
        yield from cursor.whitespace()
    is_closed = bool(name) and (yield from cursor.literal(_KIMI_CALL_END))
    if not is_closed and not arguments:
        raise NoCall
    return Calls((WrittenCall(name, arguments),), is_closed)


def _read_head(cursor: Cursor) -> Waiting[tuple[str, str]]:
    text = yield from cursor.take_until(_SEPARATOR)
    yield from cursor.one_of(_SEPARATOR)
    yield from cursor.whitespace()
    match = _HEAD.fullmatch(text)
    return (unescape_entities(match["name"]), match["attributes"]) if match else ("", "")


def _parse_typed(text: str, attributes: str) -> JsonValue:
    if 'type="string"' in attributes:
        return text
    match read_whole(text):
        case Value(value, is_closed=True):
            return value
        case _:
            return text


KIMI_K3 = Syntax("kimi_k3", (_KIMI_CALL,), _read_kimi)

# The same where an engine drops the control tokens and keeps the words (pwilkin/llama.cpp#20).
_WORDS_CALL, _WORDS_ARGUMENT = 'call tool="', 'argument key="'
_WORDS_ATTRIBUTES = Literals((' index="', ' type="'))
_WORDS_VALUE_ENDS = Literals((f"argument{_WORDS_ARGUMENT}", "argumentcall"))
_WORDS_NAME = re.compile(r'[^"\n=]+')


def _read_kimi_words(cursor: Cursor, opening: str) -> Reading:
    """Read calls up to the word `tools`, whose values end at the word `argument`."""
    calls: list[WrittenCall] = []
    is_call = True
    while is_call and len(calls) <= MOST_CALLS:
        calls.append((yield from _read_kimi_word_call(cursor)))
        is_call = yield from cursor.literal(_WORDS_CALL)
    return Calls(tuple(calls), (yield from cursor.literal("tools")))


def _read_kimi_word_call(cursor: Cursor) -> Waiting[WrittenCall]:
    name, _ = yield from _read_word_head(cursor)
    arguments: JsonObject = {}
    while (yield from cursor.literal(_WORDS_ARGUMENT)):
        key, attributes = yield from _read_word_head(cursor)
        text = yield from cursor.take_until(_WORDS_VALUE_ENDS)
        if not (yield from cursor.literal("argument")) or key in arguments:
            raise NoCall(Reason.BROKEN)
        arguments[key] = _parse_typed(text, attributes)
    if not (yield from cursor.literal("call")):
        raise NoCall(Reason.BROKEN)
    return WrittenCall(name, arguments)


def _read_word_head(cursor: Cursor) -> Waiting[tuple[str, str]]:
    name = yield from cursor.take(_WORDS_NAME)
    if not name or not (yield from cursor.literal('"')):
        raise NoCall(Reason.BROKEN)
    attributes = ""
    while mark := (yield from cursor.one_of(_WORDS_ATTRIBUTES)):
        attributes += mark + (yield from cursor.take(_WORDS_NAME)) + '"'
        if not (yield from cursor.literal('"')):
            raise NoCall(Reason.BROKEN)
    return name, attributes


KIMI_K3_WORDS = Syntax("kimi_k3_words", (f"tools{_WORDS_CALL}",), _read_kimi_words, "reply_start")

_SOLAR_CALL, _SOLAR_CALL_END = "<|tool_call:start|>", "<|tool_call:end|>"
_SOLAR_KEY, _SOLAR_VALUE = "<|tool_arg:start|>", "<|tool_arg:value|>"
_SOLAR_VALUE_END = "<|tool_arg:end|>"
_SOLAR_KEY_ENDS = Literals((_SOLAR_VALUE, _SOLAR_VALUE_END, _SOLAR_CALL_END))
_SOLAR_VALUE_ENDS = Literals((_SOLAR_VALUE_END, _SOLAR_KEY, _SOLAR_CALL, _SOLAR_CALL_END))
_PLAIN_NAME = re.compile(r"[\w./:\\-]+")
_NO_KEY = frozenset("<>\n")


def _read_solar(cursor: Cursor, opening: str) -> Reading:
    """Read a name, and keys and values between control tokens, on lines of their own."""
    yield from cursor.whitespace()
    name = yield from cursor.take(_PLAIN_NAME)
    yield from cursor.whitespace()
    arguments: JsonObject = {}
    while name and (yield from cursor.literal(_SOLAR_KEY)):
        key = (yield from cursor.take_until(_SOLAR_KEY_ENDS)).strip()
        has_value = yield from cursor.literal(_SOLAR_VALUE)
        text = yield from cursor.take_until(_SOLAR_VALUE_ENDS)
        has_end = yield from cursor.literal(_SOLAR_VALUE_END)
        is_whole = has_value and has_end and key and _NO_KEY.isdisjoint(key)
        if not is_whole or arguments.setdefault(key, text) != text:
            raise NoCall(Reason.BROKEN)
        yield from cursor.whitespace()
    is_closed = bool(name) and (yield from cursor.literal(_SOLAR_CALL_END))
    if not is_closed and not arguments:
        raise NoCall
    return Calls((WrittenCall(name, arguments),), is_closed)


_SOLAR_OPENINGS = tuple(
    f"{tool}{_SOLAR_CALL}" for tool in ("", "<|tool:start|>", "<|tool:start|>\n")
)
SOLAR_ARGUMENTS = Syntax("solar_arguments", _SOLAR_OPENINGS, _read_solar)
