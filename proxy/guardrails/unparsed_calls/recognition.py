"""Recognizes a reply that consists of a call of an offered tool, in an unknown syntax.

If the chat template of a model does not match its engine, the model writes calls that no syntax of
`rescue` reads. An agent would mistake such a call for the final answer. So the reply is rejected,
and the model is asked to make the call again. The text is never converted to a call. In doubt the
reply is an answer, for example a quotation from the prompt, an explanation of a tool, code, a
definition or a document. A missed call changes nothing, but an answer that is mistaken for a call
costs a generation.

    [call] get_weather | city = Paris [/call]         a call
    get_weather returns the weather of a city.        an answer
"""

import re
from collections.abc import Sequence
from itertools import islice

from proxy.conversation.tools import Tool, WrittenCall
from proxy.guardrails.rescue.copies import are_repeated, is_quoted
from proxy.guardrails.unparsed_calls.reading import CallReader
from proxy.guardrails.unparsed_calls.words import is_imperative

_ENDS = ("}", "]", ">", ")", "```")
# The first character of a call. Lists, quotations, headings, tables and numbers begin differently.
_START = re.compile(r"[^\W\d]|[<\[{@`$]")
_EMPTY = re.compile(r"\{\s*\}|\(\s*\)|</[^<>]+>\Z|[|｜]>\Z")  # noqa: RUF001 - as DeepSeek has it
_CLOSED = re.compile(r"(?:</[^<>]*|/)>\Z")
# Names of several words. Other names, such as `search`, also occur as words of prose, code and
# data.
_COMPOUND = re.compile(r"[^\W\d_]+(?:[_.-]|\d|(?<=[a-z])(?=[A-Z]))\w+")
_ABOUT_CALLS = re.compile(
    r"\b(?:how|example|syntax|format|snippet|usage|explain|describe|document|would|looks?\slike)\b",
    re.IGNORECASE,
)
# The backslash before an underscore, escaped for Markdown. The underscore may not have arrived yet.
_ESCAPED = re.compile(r"\\(?=_|\Z)")
# The quotation marks around a call.
_QUOTED_CALL = re.compile(r"(?<=[\[,\s])[\"'](?=[\w.]*(?:\(|\Z))|(?<=\))[\"'](?=\s*(?:[,\]]|\Z))")
_JSON = re.compile(r"json", re.IGNORECASE)
_MOST_QUOTED = 10_000  # characters of a reply that are searched in the prompt
_EXCERPT = 80  # characters before and after a name in the prompt
_MOST_MATCHES = 20


def looks_like_call(text: str, tools: Sequence[Tool], quotable: Sequence[str] = ()) -> bool:
    """Return whether a complete reply looks like a call of one of the tools; False in doubt.

    `quotable` are the texts in the prompt that the reply may quote.
    """
    source = _as_code(text.strip())
    if not source.endswith(_ENDS) or not _can_begin(source):
        return False
    reading = CallReader(source, {tool.name: tool for tool in tools})
    if not reading.read_to_end() or reading.is_unclosed or reading.tool is None:
        return False
    if not _is_distinct(reading, reading.tool, source):
        return False
    return not _is_known_to_model(source, reading.tool, reading.contents, quotable)


def begins_call(text: str, tools: Sequence[Tool]) -> bool:
    """Return whether a text is an incomplete call: marks, a tool's name and perhaps a key."""
    source = text.strip()
    reading = CallReader(source, {tool.name: tool for tool in tools})
    is_read = reading.read_to_end() and reading.tool is not None and reading.is_marked
    return is_read and _CLOSED.search(source) is None


def may_become_call(text: str, tools: Sequence[Tool]) -> bool:
    """Return whether a reply that begins with `text` may become a call, and must be held back.

    If `looks_like_call` is true for a text, this function is true for each beginning of the text,
    with one exception: a text with a capital letter at its start, because nearly all prose has one
    and must not be delayed.
    """
    source = _as_code(text.lstrip())
    if not source:
        return True
    if source[0].isupper() or not _can_begin(source):
        return False
    reading = CallReader(source, {tool.name: tool for tool in tools})
    return reading.read_to_end() or reading.may_continue()


def _as_code(text: str) -> str:
    r"""Remove the quotation marks around calls and the backslashes in names.

    Arctic quotes its calls, and Mixtral escapes names: `['get\_time(zone="UTC")']`.
    """
    if text.startswith("[") or _ESCAPED.search(text) is not None:
        text = _QUOTED_CALL.sub("", _ESCAPED.sub("", text))
    return text


def _can_begin(source: str) -> bool:
    return _START.match(source) is not None and not is_imperative(source)


def _is_distinct(reading: CallReader, tool: Tool, source: str) -> bool:
    """Return whether the marks and arguments distinguish a call from data, code and prose."""
    is_json = _is_json(source)
    if reading.has_key:
        is_plain = is_json or _COMPOUND.match(tool.name) is None
        return reading.is_marked or not is_plain
    schema = tool.parameters
    has_required = isinstance(schema, dict) and bool(schema.get("required"))
    is_empty = not has_required and _EMPTY.search(source) is not None
    return is_empty and reading.is_marked and not is_json


def _is_json(source: str) -> bool:
    return source.lstrip("[ \n").startswith("{")


def _is_known_to_model(
    source: str, tool: Tool, contents: Sequence[str], quotable: Sequence[str]
) -> bool:
    """Return whether the prompt contains this call, or a question about calls of the tool.

    A reply in JSON also counts as known if the prompt mentions JSON.
    """
    is_json = _is_json(source)
    if is_quoted(source[:_MOST_QUOTED], quotable) or (is_json and any(map(_JSON.search, quotable))):
        return True
    if are_repeated((WrittenCall(tool.name, [*contents]),), quotable):
        return True
    return any(is_asked_about(tool.name, text) for text in quotable)


def is_asked_about(name: str, text: str) -> bool:
    """Return whether words such as "how" or "example" are near a name in the text."""
    matches = islice(re.finditer(re.escape(name), text), _MOST_MATCHES)
    excerpts = (
        text[max(match.start() - _EXCERPT, 0) : match.end() + _EXCERPT] for match in matches
    )
    return any(map(_ABOUT_CALLS.search, excerpts))
