"""Recognizes a reply that is nothing but a call of an offered tool, in an unknown syntax.

A model with a template that does not fit its engine writes calls that no reader knows, and an
agent's loop would end with such a call as its answer. The model is asked for the call; its text is
never made a call. In doubt it is an answer: text that the model was given, explanations of a tool,
code, a definition, a document. Missing a call changes nothing; mistaking an answer for a call costs
a generation.
"""

import re
from collections.abc import Sequence
from itertools import islice

from proxy.conversation.tools import Tool, WrittenCall
from proxy.guardrails.rescue.copies import are_repeated, is_quoted
from proxy.guardrails.unparsed_calls.reading import Reading
from proxy.guardrails.unparsed_calls.words import is_imperative

_ENDS = ("}", "]", ">", ")", "```")
# A list, a quotation, a heading, a table, emphasis or a number begins with anything else.
_BEGINS = re.compile(r"[^\W\d]|[<\[{@`$]")
_EMPTY = re.compile(r"\{\s*\}|\(\s*\)|</[^<>]+>\Z|[|｜]>\Z")  # noqa: RUF001 - as DeepSeek has it
_CLOSED = re.compile(r"(?:</[^<>]*|/)>\Z")
# Names such as `search` also occur as words of prose, code and data.
_COMPOUND = re.compile(r"[^\W\d_]+(?:[_.-]|\d|(?<=[a-z])(?=[A-Z]))\w+")
_ASKED = re.compile(
    r"\b(?:how|example|syntax|format|snippet|usage|explain|describe|document|would|looks?\slike)\b",
    re.IGNORECASE,
)
_ESCAPED = re.compile(r"\\(?=_|\Z)")
# The quotation marks around a call.
_QUOTED_CALL = re.compile(r"(?<=[\[,\s])[\"'](?=[\w.]*(?:\(|\Z))|(?<=\))[\"'](?=\s*(?:[,\]]|\Z))")
_JSON = re.compile(r"json", re.IGNORECASE)
_MOST_QUOTED = 10_000
_AROUND = 80
_MOST_PLACES = 20


def looks_like_call(text: str, tools: Sequence[Tool], quotable: Sequence[str] = ()) -> bool:
    """Return whether a whole reply looks like a call of one of the tools; in doubt it does not.

    `quotable` texts were given to the model to read.
    """
    source = _as_code(text.strip())
    if not source.endswith(_ENDS) or not _may_begin(source):
        return False
    reading = Reading(source, {tool.name: tool for tool in tools})
    if not reading.read_to_end() or reading.is_torn or reading.tool is None:
        return False
    if not _is_whole(reading, reading.tool, source):
        return False
    return not _is_read(source, reading.tool, reading.contents, quotable)


def begins_call(text: str, tools: Sequence[Tool]) -> bool:
    """Return whether a text is only the beginning of a call: marks and a name, perhaps a key."""
    source = text.strip()
    reading = Reading(source, {tool.name: tool for tool in tools})
    is_read = reading.read_to_end() and reading.tool is not None and reading.is_marked
    return is_read and _CLOSED.search(source) is None


def may_become_call(text: str, tools: Sequence[Tool]) -> bool:
    """Return whether a reply with this beginning may look like a call; prose never does.

    Every beginning of a text that `looks_like_call` may become one, except a capital letter: it
    begins nearly all prose, which would be held back up to its second word.
    """
    source = _as_code(text.lstrip())
    if not source:
        return True
    if source[0].isupper() or not _may_begin(source):
        return False
    reading = Reading(source, {tool.name: tool for tool in tools})
    return reading.read_to_end() or reading.may_continue()


def _as_code(text: str) -> str:
    r"""Return a text without the quotation marks and backslashes around names in a list of calls.

    Arctic quotes its calls, and Mixtral escapes names: `['get\_time(zone="UTC")']`.
    """
    if text.startswith("[") or _ESCAPED.search(text) is not None:
        text = _QUOTED_CALL.sub("", _ESCAPED.sub("", text))
    return text


def _may_begin(source: str) -> bool:
    return _BEGINS.match(source) is not None and not is_imperative(source)


def _is_whole(reading: Reading, tool: Tool, source: str) -> bool:
    """Return whether its marks and arguments distinguish it from data, code and prose."""
    is_json = _is_json(source)
    if reading.has_key:
        is_plain = is_json or _COMPOUND.match(tool.name) is None
        return reading.is_marked or not is_plain
    schema = tool.parameters
    needs_any = isinstance(schema, dict) and bool(schema.get("required"))
    is_empty = not needs_any and _EMPTY.search(source) is not None
    return is_empty and reading.is_marked and not is_json


def _is_json(source: str) -> bool:
    return source.lstrip("[ \n").startswith("{")


def _is_read(source: str, tool: Tool, contents: Sequence[str], quotable: Sequence[str]) -> bool:
    """Return whether the model has read this call, or was asked about calls of the tool."""
    is_json = _is_json(source)
    if is_quoted(source[:_MOST_QUOTED], quotable) or (is_json and any(map(_JSON.search, quotable))):
        return True
    if are_repeated((WrittenCall(tool.name, [*contents]),), quotable):
        return True
    return any(is_asked_about(tool.name, text) for text in quotable)


def is_asked_about(name: str, text: str) -> bool:
    """Return whether words about how something is called are near a name."""
    places = islice(re.finditer(re.escape(name), text), _MOST_PLACES)
    excerpts = (text[max(match.start() - _AROUND, 0) : match.end() + _AROUND] for match in places)
    return any(map(_ASKED.search, excerpts))
