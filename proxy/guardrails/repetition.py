"""Finds replies that repeat the result of a tool or an executed call.

After the first tool result, small models often repeat the call as text, write a copy of the result
instead of an answer, or explain the calls that they made. Qwen2.5-Coder-Instruct 1.5B repeated a
call in 10 of 24 tasks on llama-server (b11549, temperature 0) and echoed a result in 4; the 0.5B
echoed or invented a result in 12. `executed_calls` decides whether a call has run.
"""

import re

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.tools import WrittenCall
from proxy.guardrails.executed_calls import has_run
from proxy.guardrails.grounding import Progress, judge_progress
from proxy.guardrails.names import find_tool
from proxy.guardrails.offer import OfferedTools
from proxy.guardrails.rescue.marks import (
    begins_plain_call,
    envelope_starts,
    may_be_label,
    strip_label,
)
from proxy.guardrails.rescue.rows import FENCE
from proxy.guardrails.rescue.syntaxes.envelope import calls_in
from proxy.guardrails.rescue.values.reader import read_values

_FENCED = re.compile(r"\A```\w*\s*\n?(.*?)(?:\n?```)?\Z", re.DOTALL)
_BEGINS_JSON = re.compile(r"\s*(?:```\w*\s*)?[{\[]")
# The first key of a reply in JSON; the second group is None as long as the key may continue.
_FIRST_KEY = re.compile(r"\s*(?:```\w*\s*)?(?:\[\s*)?\{\s*[\"'](\w*)([\"'])?")
# The start of a reply that is not JSON: a bracket, and text that is neither a key nor a value.
_IS_OTHER = re.compile(r"\s*(?:```\w*\s*)?(?:\{\s*[^\"'\s}]|\[\s*[^{\[\"'\d\]\s-])")
# Keys under which models wrap the copy of a result: {"result": {...}}.
_WRAPPERS = frozenset(
    (
        *("result", "results", "output", "response", "observation", "data", "content", "value"),
        *("tool_output", "tool_result", "tool_response", "tool", "name", "role", "status", "rows"),
        *("items", "success"),
    )
)
_FENCE_BEGINS = re.compile(r"\A```\w*\s*")
_FENCE_AT_END = re.compile(r"```\w*\Z")
# A code fence that follows other text on its line.
_INLINE_FENCE = re.compile(r"(?<=\S) *```")
_SHORTEST_COPY = 8  # characters of a partial copy; many results begin with `{"ok"`
_DEEPEST = 2  # levels of wrapping, such as {"result": {...}}
_MOST_BLOCKS = 20
_LONGEST = 20_000  # characters; a longer reply or result is not compared
_OUTPUT = r"(?:results?|outputs?|response|returns?|returned|answer|tool|data)"
_UNCHANGED = r"(?:verbatim|raw|unchanged|exact(?:ly)?)"
# Words in a user message that request JSON or an unchanged result, such as "the raw output".
_WANTS_JSON = re.compile(
    r"(?<![A-Za-z0-9_])json(?![A-Za-z0-9_])"  # Chinese writes no space around it
    rf"|\b(?:{_UNCHANGED}\b[^.\n]{{0,40}}\b{_OUTPUT}|{_OUTPUT}\b[^.\n]{{0,40}}\b{_UNCHANGED})\b",
    re.IGNORECASE,
)
# Instructions that demand JSON. The word "JSON" alone is not enough: many instructions contain it.
_DEMANDS_JSON = re.compile(
    r"\b(?:answer|respond|reply|output|return|format)\w*\b[^.\n]{0,60}\bjson\b", re.IGNORECASE
)
_SAME_LINES = 3  # consecutive equal lines that show a loop
_SENTENCE = 30  # characters; shorter lines (`}`, `---`) also repeat in good text


def is_echo(text: str, offer: OfferedTools, *, is_retry: bool = False) -> bool:
    """Return whether a text is JSON that repeats results or calls since the last user message.

    The text may begin with a label ("Observation:") and may be incomplete. In a retry, any JSON
    without a sentence is an echo, even if it is broken. If the user asked for JSON, no text is an
    echo.

        result: {"city": "Paris", "sky": "clear"}

        Observation: {"city": "Paris", "sky": "clear"}      an echo
        {"result": {"city": "Paris", "sky": "clear"}}       an echo
        {"city": "Paris", "sky": "rain"}                    an echo: the same members
        {"advice": "Take an umbrella."}                     an answer
    """
    content = _strip_labels(text)
    if not offer.executed or _BEGINS_JSON.match(content) is None or wants_json(offer):
        return False
    values = _read_all(content)
    if is_retry and not words_in_json(content):
        return True
    if not values:
        return _breaks_off(content, offer)
    return all(_is_copy(value, offer) for value in values)


def _strip_labels(text: str) -> str:
    """Remove the label of a result.

    If the text begins with a label, the labels at the start of its other lines are removed as well.
    """
    content = strip_label(text.lstrip())
    if len(content) == len(text.lstrip()):
        return content
    return "\n".join(map(strip_label, content.split("\n")))


def _breaks_off(text: str, offer: OfferedTools) -> bool:
    """Return whether a text is the beginning of a result, ignoring white space."""
    content = "".join(_FENCE_BEGINS.sub("", text, count=1).split())
    results = ["".join(call.result.split()) for call in offer.executed]
    is_long = len(content) >= _SHORTEST_COPY
    return is_long and any(result.startswith(content) for result in results)


def copies_result(text: str, offer: OfferedTools) -> bool:
    """Return whether a text equals a result that the user did not ask to see verbatim."""
    content = text.strip()
    is_copy = bool(content) and any(content == call.result.strip() for call in offer.executed)
    return is_copy and not wants_json(offer)


def words_in_json(text: str) -> str:
    """Return the only sentence in a JSON object, as in `{"ok": true, "outcome": "It is done."}`.

    After a result in JSON, small models also write the answer in JSON.
    """
    values = _read_all(text) if _BEGINS_JSON.match(text) else []
    if (
        len(values) != 1
        or not isinstance(value := values[0], dict)
        or calls_in(value, is_marked=False)
    ):
        return ""
    sentences = [item for item in value.values() if isinstance(item, str) and " " in item.strip()]
    return sentences[0].strip() if len(sentences) == 1 else ""


def may_become_echo(text: str, offer: OfferedTools, *, is_retry: bool = False) -> bool:
    """Return whether a reply with the beginning `text` may become an echo."""
    if not offer.executed or wants_json(offer):
        return False
    content = strip_label(text.lstrip())
    if is_retry and _BEGINS_JSON.match(content):
        return True
    if _BEGINS_JSON.match(content) is None:
        return may_be_label(text.lstrip())
    key = _FIRST_KEY.match(content)
    if key is None:
        return len(text) < _LONGEST and _IS_OTHER.match(content) is None
    results = [result if isinstance(result, list) else [result] for result in _results(offer)]
    known = {*_WRAPPERS, *(name for rows in results for row in rows for name in _members(row))}
    is_complete = key[2] is not None
    return key[1] in known if is_complete else any(name.startswith(key[1]) for name in known)


def list_shown_calls(text: str, offer: OfferedTools) -> list[WrittenCall]:
    """List the calls of offered tools that a text shows as JSON after tools have run."""
    if not offer.executed or len(text) > _LONGEST:
        return []
    # The parser may read from each start to the end of the text, so the number of starts is
    # limited.
    starts = envelope_starts(text)[:_MOST_BLOCKS]
    values = [
        value for start in starts for value in read_values(text[start:], is_complete=False)[:1]
    ]
    calls = [call for value in values for call in calls_in(value, is_marked=False)]
    return [call for call in calls if find_tool(call.name, offer.tools) is not None]


def find_explanation(text: str, line: str, offer: OfferedTools) -> int:
    """Return the index at which `text` begins to explain executed calls, or -1.

    If all calls in the text have run, or the request is done, the explanation begins with the first
    call. Otherwise it begins with a code fence that follows other text on its line. `line` is the
    part of the first line that precedes `text`.
    """
    calls = list_shown_calls(text, offer)
    is_done = bool(calls) and judge_progress(offer) is Progress.DONE
    if is_done or (calls and all(has_run(call, offer) for call in calls)):
        before = text[: envelope_starts(text)[0]].rstrip()
        return len(_FENCE_AT_END.sub("", before).rstrip())
    match = _INLINE_FENCE.search(line + text) if FENCE in text else None
    return -1 if match is None else max(match.start() - len(line), 0)


def repeats_line(text: str) -> bool:
    """Return whether a text ends with equal complete lines and an incomplete line."""
    lines = [line for line in text[-_LONGEST:].splitlines() if line.strip()][-_SAME_LINES - 1 : -1]
    return len(lines) == _SAME_LINES and len({*lines}) == 1 and len(lines[0]) >= _SENTENCE


def is_json(text: str) -> bool:
    """Return whether a text consists of JSON objects or lists."""
    content = strip_label(text.lstrip())
    return _BEGINS_JSON.match(content) is not None and bool(_read_all(content))


def calls_of(text: str) -> tuple[WrittenCall, ...]:
    """Return the calls in a text that consists only of calls in JSON; () for any other text."""
    values = _read_all(text)
    calls = [calls_in(value, is_marked=False) for value in values]
    return tuple(call for group in calls for call in group) if all(calls) else ()


def is_broken_call(text: str, offer: OfferedTools) -> bool:
    """Return whether a reply is an incomplete call in JSON, after tools have run."""
    content = text.lstrip()
    is_call = content.startswith("{") and "\n\n" not in content
    if not (is_call and offer.executed) or wants_json(offer):
        return False
    names = [tool.name for tool in offer.tools]
    return begins_plain_call(content, names) and not read_values(content, is_complete=False)


def find_foreign_calls(text: str, offer: OfferedTools) -> tuple[WrittenCall, ...]:
    """Return the calls of tools that are not offered, in a text that consists only of calls.

    Returns () if the user named one of the tools or asked for JSON, because the text is then an
    answer.
    Qwen2.5-Coder 1.5B ended a conversation with `{"name": "exit", "arguments": null}`.
    """
    calls = calls_of(text) if _BEGINS_JSON.match(text) else ()
    foreign = tuple(call for call in calls if find_tool(call.name, offer.tools) is None)
    is_named = any(call.name in words for call in foreign for words in offer.user_texts)
    return () if is_named or wants_json(offer) else foreign


def _read_all(text: str) -> list[JsonValue]:
    """Read a text that consists of JSON objects and lists, or of one code fence with them."""
    content = text.strip()
    if len(content) > _LONGEST:
        return []
    if content.startswith("```") and (fenced := _FENCED.match(content)):
        content = fenced[1].strip()
    return read_values(content)


def _is_copy(value: JsonValue, offer: OfferedTools) -> bool:
    """Return whether a value consists of calls that have run, or repeats a result."""
    calls = calls_in(value, is_marked=False)
    if calls:
        return all(has_run(call, offer) for call in calls)
    return any(_is_like(value, result) for result in _results(offer))


def _is_like(value: JsonValue, result: JsonValue, depth: int = _DEEPEST) -> bool:
    """Return whether a value equals, wraps or imitates a result or a part of it.

    An imitation is an object with the same members, or a list of such objects.
    """
    if value == result or _has_same_members(value, result):
        return True
    if isinstance(result, list):
        items = value if isinstance(value, list) else [value]
        if items and all(any(_has_same_members(item, row) for row in result) for item in items):
            return True
    if value in _members(result).values():
        return True
    if not depth:
        return False
    inner = [*_members(value).values(), *(value if isinstance(value, list) else ())]
    parts = [_parse(item) for item in inner if _may_wrap(item)]
    return any(_is_like(part, result, depth - 1) for part in parts)


def _has_same_members(value: JsonValue, result: JsonValue) -> bool:
    """Return whether the values are equal, or one object has only member names of the other."""
    names, known = _members(value).keys(), _members(result).keys()
    return value == result or bool(names and known and (names <= known or known <= names))


def _members(value: JsonValue) -> JsonObject:
    return value if isinstance(value, dict) else {}


def _may_wrap(value: JsonValue) -> bool:
    return isinstance(value, dict | list) or (isinstance(value, str) and value[:1] in ("{", "["))


def _parse(value: JsonValue) -> JsonValue:
    """Return the JSON in a text, or the value itself."""
    try:
        return json.parse(value) if isinstance(value, str) else value
    except ValueError:
        return value


def _results(offer: OfferedTools) -> list[JsonValue]:
    """Parse the results that a reply may copy.

    Long results are skipped, because all results are parsed again for each delta of a reply.
    """
    return [_parse(call.result) for call in offer.executed if len(call.result) <= _LONGEST]


def wants_json(offer: OfferedTools) -> bool:
    """Return whether the user or the operator asked for JSON, or for a verbatim result."""
    is_wanted = any(_WANTS_JSON.search(text) for text in offer.user_texts)
    return is_wanted or any(_DEMANDS_JSON.search(text) for text in offer.instructions)
