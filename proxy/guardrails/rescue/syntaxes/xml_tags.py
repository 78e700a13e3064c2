"""Calls as XML-like tags, whichever words a model family uses in them.

`<function=NAME><parameter=KEY>value`: Qwen3-Coder; Nemotron, Step, MiMo, Granite and Seed write
the same, and Llama 3 JSON in place of parameters. `<function name="NAME"><param name="KEY">value`:
MiniCPM, and others do it to other tags (`<tool_call name="NAME">`). `<invoke name="NAME">`, in any
namespace: DeepSeek (DSML), MiniMax, Step 3, Muse, dots and models that imitate Claude.
`<tool_call><name>NAME</name><arguments>{...}`: the envelope as tags.
`<|open|>call tool="NAME"<|sep|>`: Kimi K3.
"""

# ruff: noqa: RUF001 - the control tokens of DeepSeek and Step have a fullwidth bar

import re

from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.tools import WrittenCall
from proxy.guardrails.rescue.syntax import Calls, NotACall, Reading, Reason, Syntax
from proxy.guardrails.rescue.syntaxes.tagged import Element, Tagged
from proxy.guardrails.rescue.values.cursor import Cursor, Literals, Waiting, literals_of
from proxy.guardrails.rescue.values.reader import read_value, read_whole
from proxy.guardrails.rescue.values.scalars import Style, Unreadable, Value
from proxy.guardrails.rescue.values.tag_values import unescape_entities

# Functions and parameters as tags with a name attribute, the space often missing.
FUNCTION_TAGS = Tagged(
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


# Calls whose tag has the tool's name as an attribute; JSON or parameters stand between.
ATTRIBUTED_TAGS = Tagged(
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
QWEN_CODER = Tagged(
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


def _loose_ends(namespace: str) -> dict[str, str]:
    """Return the closing marks without their namespace, and those they stand for."""
    tags = ("invoke", "parameter") if namespace else ()
    return {f"</{tag}>": f"</{namespace}{tag}>" for tag in tags}


def _invocation(before: str, namespace: str) -> Element:
    return Element(
        f"{before}<{namespace}invoke name=",
        f"{before}</{namespace}invoke>",
        (f"{before}<{namespace}parameter name=",),
        f"{before}</{namespace}parameter>",
        f"{before}<",
        token=before,
        loose=_loose_ends(namespace),
    )


# Invocations and parameters as tags with attributes, with or without a wrapper.
INVOKE = Tagged(
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


class NamedTags(Syntax):
    """A name in a tag, and a JSON object of arguments in another."""

    name = "named_tags"
    openings = tuple(f"<{tag}>" for tag in _ENVELOPES)

    def read(self, cursor: Cursor, opening: str) -> Reading:
        yield from cursor.whitespace()
        mark = yield from cursor.one_of(_NAME_TAGS)
        name = (yield from _read_text(cursor, mark)).strip() if mark else ""
        if not name or len(name) > _LONGEST_NAME:
            return NotACall(Reason.NOT_A_CALL)
        yield from cursor.whitespace()
        arguments: JsonObject | None = {}
        if mark := (yield from cursor.one_of(_ARGUMENT_TAGS)):
            arguments = yield from _read_object(cursor, name, mark)
        if arguments is None:
            return NotACall(Reason.BROKEN)
        yield from cursor.whitespace()
        is_closed = yield from cursor.literal(_end_of(opening))
        if not is_closed and not mark:
            return NotACall(Reason.NOT_A_CALL)
        return Calls((WrittenCall(name, arguments),), is_closed)


def _read_text(cursor: Cursor, mark: str) -> Waiting[str]:
    text = yield from cursor.take_until(literals_of("<"))
    return text if (yield from cursor.literal(_end_of(mark))) else ""


def _read_object(cursor: Cursor, name: str, mark: str) -> Waiting[JsonObject | None]:
    end = _end_of(mark)
    yield from cursor.whitespace()
    value: JsonValue = {}
    if not (yield from cursor.is_next(end)):
        cursor.start_arguments(name)
        read = yield from read_value(cursor, None, Style((end,)))
        cursor.end_arguments()
        value = None if isinstance(read, Unreadable) else read.value
        yield from cursor.whitespace()
    is_closed = yield from cursor.literal(end)
    return value if is_closed and isinstance(value, dict) else None


def _end_of(mark: str) -> str:
    return f"</{mark[1:]}"


_SEPARATOR = Literals(("<|sep|>",))
_ARGUMENT = '<|open|>argument key="'
_ARGUMENT_END = Literals(("<|close|>argument<|sep|>",))
_KIMI_CALL_END = "<|close|>call<|sep|>"
_HEAD = re.compile(r'(?P<name>[^"]+)"(?P<attributes>(?:\s+[\w:-]+="[^"]*")*)\s*')


class KimiK3(Syntax):
    """Elements made of control tokens, an argument each with its type."""

    name = "kimi_k3"
    openings = ('<|open|>call tool="',)

    def read(self, cursor: Cursor, opening: str) -> Reading:
        name, _ = yield from _read_head(cursor)
        arguments: JsonObject = {}
        while name and (yield from cursor.literal(_ARGUMENT)):
            key, attributes = yield from _read_head(cursor)
            text = yield from cursor.take_until(_ARGUMENT_END)
            closer = yield from cursor.one_of(_ARGUMENT_END)
            if not key or not closer or _begins_element(text):
                return NotACall(Reason.BROKEN)
            arguments[key] = _parse_typed(text, attributes)
            yield from cursor.whitespace()
        is_closed = bool(name) and (yield from cursor.literal(_KIMI_CALL_END))
        if not is_closed and not arguments:
            return NotACall(Reason.NOT_A_CALL)
        return Calls((WrittenCall(name, arguments),), is_closed)


def _read_head(cursor: Cursor) -> Waiting[tuple[str, str]]:
    text = yield from cursor.take_until(_SEPARATOR)
    yield from cursor.one_of(_SEPARATOR)
    yield from cursor.whitespace()
    match = _HEAD.fullmatch(text)
    return (unescape_entities(match["name"]), match["attributes"]) if match else ("", "")


def _begins_element(text: str) -> bool:
    """Whether a value runs into another argument or call: its own closing mark is missing."""
    return _ARGUMENT in text or KimiK3.openings[0] in text


def _parse_typed(text: str, attributes: str) -> JsonValue:
    if 'type="string"' in attributes:
        return text
    match read_whole(text):
        case Value(value, is_closed=True):
            return value
        case _:
            return text
