r"""Reads the calls that an engine's parser mistook for the name or a value of another call.

A parser that misses a closing mark puts the rest of the reply into the last value
(llama.cpp#26763). A parser that ends a value too early leaves an incomplete mark in the value
(vLLM#53227):

    {"command": "git diff</parameter>\n</function>\n<function=read_clock>\n</function>"}
    {"command": "make test</｜DSML｜parameter"}

To recover the calls, this module puts the marks of a format around the value and parses the result
like a reply in text. Models also write files that contain markup. So a closing mark is part of the
value if the value also contains the opening mark, or if words follow the closing mark.
"""

# ruff: noqa: RUF001, RUF002 - the control tokens of DeepSeek have a fullwidth bar

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.tools import WrittenCall
from proxy.guardrails.names import has_markup
from proxy.guardrails.rescue.findings import FoundCalls, Prose
from proxy.guardrails.rescue.formats import FORMATS, TABLE, Format, end_of
from proxy.guardrails.rescue.marks import STRAY_CLOSERS
from proxy.guardrails.rescue.scanner import find_calls
from proxy.guardrails.rescue.syntax import Syntax
from proxy.guardrails.rescue.unnamed import UNNAMED


class CallMarks:
    """The marks of a call with one argument in one format.

    `before` is the text before the value, `end` the mark after the value, and `after` the text
    after this mark. `is_sure` is true if no other format has the same end mark.
    """

    def __init__(self, before: str, end: str, after: str, *, is_sure: bool = False) -> None:
        self.before, self.end, self.after, self.is_sure = before, end, after, is_sure
        opening = before[before.rfind("<") :].partition(" name=")[0].partition("=")[0]
        self.opening = opening.partition(">")[0]


def _list_call_marks() -> Iterator[CallMarks]:
    """Yield the marks of all formats that have marks around values."""
    ends = Counter(
        end
        for row in TABLE.formats
        for end in {end for tag in row.variants for end in tag.parameters.values()}
    )
    for row in TABLE.formats:
        for before, end, after in _marks_of(row):
            yield CallMarks(before, end, after, is_sure=ends[end] <= 1)


def _marks_of(row: Format) -> Iterator[tuple[str, str, str]]:
    """For each end mark, yield the text before the value, the mark, and the end of the call."""
    known: set[str] = set()
    for element in row.variants:
        mark, end = next(iter(element.parameters.items()))
        if end not in known:
            lines = "\n" * element.has_lines
            yield f"{_tag(element.call)}\n{_tag(mark)}{lines}", end, f"\n{element.end}"
        known.add(end)
    if row.shape == "pairs":
        call, key, value = map(row.part, ("call", "key", "value"))
        yield f"{call}%s{key}%s{end_of(key)}{value}", end_of(value), end_of(call)
    if row.shape == "key_values" and row.part("key").endswith('"'):
        key, value = row.part("key"), row.part("value")
        before = f'{row.openings[0]}%s"{value}{key}%s" type="string"{value}'
        yield before, row.part("end"), row.ends[0]


def _tag(mark: str) -> str:
    return f'{mark}"%s">' if mark.endswith("name=") else f"{mark}%s>"


_CALL_MARKS = tuple(_list_call_marks())
_CALL, _CALL_END = next(iter(FORMATS["hermes"].marks.items()))
_FUNCTION = FORMATS["qwen_coder"].elements[0]
_MARK = re.compile(r"\s*(?:</?[|｜]?[\w:|｜]+|<\|\w)")
# An incomplete mark counts only if it has more than this many characters; a shorter one such as
# `</p` may be HTML.
_SHORTEST_PART = 4
# The end of a value that consists of closing marks only.
_REST_OF_CALL = re.compile(r"\s*(?:</[\w:|｜ ]+>?\s*|<\|close\|>\w+<\|sep\|>\s*)*\Z")


class TextReader(NamedTuple):
    """Reads text again, with the given syntaxes and names of tools."""

    syntaxes: Sequence[Syntax]
    names: Sequence[str]

    def read(self, text: str) -> Sequence[WrittenCall] | None:
        """Return the calls of a text that consists of calls only; None for other text."""
        calls: list[WrittenCall] = []
        for finding in find_calls(text, self.syntaxes, self.names):
            if isinstance(finding, FoundCalls):
                calls += finding.calls
            elif isinstance(finding, Prose) and finding.text.strip():
                return None
        return None if any(map(_is_incomplete, calls)) else calls


def _is_incomplete(call: WrittenCall) -> bool:
    return isinstance(call.arguments, dict) and UNNAMED in call.arguments


def may_contain_calls(call: WrittenCall) -> bool:
    """Check cheaply whether a call's name or arguments may contain a mark."""
    arguments = call.arguments
    return (
        has_markup(call.name)
        or not isinstance(arguments, str)
        or "<" in arguments
        or "\\u" in arguments
    )


def reread(
    call: WrittenCall, syntaxes: Sequence[Syntax], names: Sequence[str]
) -> Sequence[WrittenCall]:
    """Return the calls that a structured call contains. In doubt, return only the call itself."""
    reader = TextReader(syntaxes, names)
    if has_markup(call.name):
        return _reread_name(call, reader) or (call,)
    for key, value in _parse(call.arguments).items():
        if isinstance(value, str) and "<" in value and (calls := _reread_value(call, key, reader)):
            return calls
    return (call,)


def _parse(arguments: JsonValue) -> JsonObject:
    """Return the members of arguments in JSON; {} if they are broken."""
    try:
        value = json.parse(arguments) if isinstance(arguments, str) else None
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _reread_name(call: WrittenCall, reader: TextReader) -> Sequence[WrittenCall] | None:
    """Read the arguments in a name such as `f<arg_key>a</arg_key><arg_value>1</arg_value>`.

    A mark may also precede the tool's name (`<tool_call>f`), or JSON arguments may follow it
    (`f{"a": 1}`).
    """
    name, brace, rest = call.name.partition("{")
    for text in (
        f"{_CALL}{call.name}{_CALL_END}",
        f"{_FUNCTION.call}{call.name}{_FUNCTION.end}",
        f"{call.name}{_CALL_END}",
        f"{_FUNCTION.call}{name}>{brace}{rest}{_FUNCTION.end}",
    ):
        calls = reader.read(text)
        if calls and len(calls) == 1:
            return (_merge(call, _parse(call.arguments), calls[0]),)
    return None


def _merge(call: WrittenCall, known: JsonObject, repaired: WrittenCall) -> WrittenCall:
    more = repaired.arguments if isinstance(repaired.arguments, dict) else {}
    return WrittenCall(repaired.name, json.dump_text({**known, **more}), call.id)


def _reread_value(call: WrittenCall, key: str, reader: TextReader) -> Sequence[WrittenCall] | None:
    arguments = _parse(call.arguments)
    value = str(arguments[key])
    for marks in _CALL_MARKS:
        index = _find_end(value, marks)
        if index is None:
            continue
        rest = value[index + len(marks.end) :]
        # If the model writes about markup, a single closing mark may be part of the value. So the
        # mark ends the value only if no other format has this mark, or if a second mark follows.
        if _REST_OF_CALL.match(rest) and (marks.is_sure or rest.strip()):
            named = {**arguments, key: value[:index].removesuffix("\n")}
            return (WrittenCall(call.name, json.dump_text(named), call.id),)
        text = marks.before % (call.name, key) + value
        for source in (text, f"{text}{marks.end}{marks.after}") if rest.strip() else ():
            if calls := reader.read(source):
                known = {name: other for name, other in arguments.items() if name != key}
                later = [replace(other, arguments=_text_of(other)) for other in calls[1:]]
                return (_merge(call, known, calls[0]), *later)
    return None


def _text_of(call: WrittenCall) -> str:
    return json.dump_text(call.arguments)


def find_leak(arguments: JsonObject) -> str | None:
    """Return the name of an argument whose value probably contains marks of its call."""
    return next(
        (key for key, value in arguments.items() if _leaks(value) or _ends_with_mark(value)), None
    )


def _leaks(value: JsonValue) -> bool:
    if isinstance(value, dict | list):
        return any(map(_leaks, value.values() if isinstance(value, dict) else value))
    if not (isinstance(value, str) and "<" in value):
        return False
    return any(_find_end(value, marks) is not None for marks in _CALL_MARKS)


def _ends_with_mark(value: JsonValue) -> bool:
    """Return whether a text ends with a closing mark of a call, and lacks the opening mark."""
    if not (isinstance(value, str) and "<" in value):
        return False
    text = value.rstrip()
    end = next((closer for closer in STRAY_CLOSERS if text.endswith(closer)), "")
    return bool(end) and end.replace("/", "", 1).removesuffix(">") not in text.removesuffix(end)


def _find_end(value: str, marks: CallMarks) -> int | None:
    """Return the index of a complete or incomplete closing mark that has no opening mark."""
    index = value.find(marks.end)
    if index < 0:
        part = next(
            (
                length
                for length in range(len(marks.end) - 1, _SHORTEST_PART, -1)
                if value.endswith(marks.end[:length])
            ),
            0,
        )
        index = len(value) - part if part else -1
    if index < 0 or marks.opening in value[:index]:
        return None
    rest = value[index + len(marks.end) :]
    return index if not rest.strip() or _MARK.match(rest) else None
