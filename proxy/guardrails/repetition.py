"""Replies that repeat what has already happened: an executed call, or the result of a tool.

After the first tool result small models often write the same call again as text, copy the result in
place of an answer, or explain the calls that they made. Qwen2.5-Coder-Instruct 1.5B repeated a call
in 10 of 24 tasks on llama-server (b11549, temperature 0) and echoed a result in 4; the 0.5B echoed
or invented a result in 12. Passed on, such a call sends a mail twice.

Only text that the model wrote in the form of a call or of a result is judged here. A call that the
backend recognized itself may be a poll and stays under the rule for loops (`transcript.find_loop`).

A repeated call is passed on in two cases. Its result said that something is still going on, or it
observes something (`read_file`, `run_tests`) and a new call that may have changed it came after it.
"""

import re
from collections.abc import Iterator

from proxy.conversation import json
from proxy.conversation.json import JsonValue
from proxy.conversation.tools import WrittenCall
from proxy.guardrails.names import find_tool
from proxy.guardrails.offer import OfferedTools
from proxy.guardrails.rescue.marks import (
    begins_plain_call,
    envelope_starts,
    may_be_label,
    strip_label,
)
from proxy.guardrails.rescue.syntaxes.envelope import calls_in
from proxy.guardrails.rescue.values.reader import read_values
from proxy.guardrails.same_calls import are_alike, awaits_change, count_wanted
from proxy.guardrails.schemas.arguments import ValidArguments, check
from proxy.guardrails.transcript import LONGEST_STATUS, CompletedCall, is_pending

_FENCED = re.compile(r"\A```\w*\s*\n?(.*?)(?:\n?```)?\Z", re.DOTALL)
_BEGINS_JSON = re.compile(r"\s*(?:```\w*\s*)?[{\[]")
_FIRST_KEY = re.compile(r"\s*(?:```\w*\s*)?(?:\[\s*)?\{\s*[\"'](\w*)([\"'])?")
_IS_OTHER = re.compile(r"\s*(?:```\w*\s*)?(?:\{\s*[^\"'\s}]|\[\s*[^{\[\"'\d\]\s-])")
# Keys under which models wrap the copy of a result.
_WRAPPERS = frozenset(
    (
        *("result", "results", "output", "response", "observation", "data", "content", "value"),
        *("tool_output", "tool_result", "tool_response", "tool", "name", "role", "status", "rows"),
        *("items", "success"),
    )
)
_FAILED = re.compile(
    r"\"(?:ok|success|succeeded)\"\s*:\s*false|\"status\"\s*:\s*\"(?:fail|error|reject)"
)
_FENCE_BEGINS = re.compile(r"\A```\w*\s*")
_SHORTEST_COPY = 8  # characters of a result that is not copied to its end
_DEEPEST = 2  # wrappings such as {"result": {...}}
_MOST_BLOCKS = 20
_LONGEST = 20_000  # characters; a longer reply or result is not compared
_OUTPUT = r"(?:results?|outputs?|response|returns?|returned|answer|tool|data)"
_UNCHANGED = r"(?:verbatim|raw|unchanged|exact(?:ly)?)"
_WANTS_JSON = re.compile(
    r"(?<![A-Za-z0-9_])json(?![A-Za-z0-9_])"  # Chinese writes no space around it
    rf"|\b(?:{_UNCHANGED}\b[^.\n]{{0,40}}\b{_OUTPUT}|{_OUTPUT}\b[^.\n]{{0,40}}\b{_UNCHANGED})\b",
    re.IGNORECASE,
)
_DEMANDS_JSON = re.compile(
    r"\b(?:answer|respond|reply|output|return|format)\w*\b[^.\n]{0,60}\bjson\b", re.IGNORECASE
)
_PASSES = re.compile(
    r"\b(?:timed? ?-?out|temporar\w*|unavailable|overloaded|busy|rate.?limit\w*|too many requests"
    r"|connection|network|locked|(?:un)?reachable|offline|refused|reset|later|429|50[0234])\b",
    re.IGNORECASE,
)
_LONGEST_ERROR = 2_000
_SAME_LINES = 3
_SENTENCE = 30  # characters
_PART = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_READS = frozenset(
    (
        *("get", "list", "read", "search", "find", "fetch", "show", "view", "look", "lookup"),
        *("query", "check", "describe", "count", "status", "stat", "cat", "ls", "grep", "glob"),
        *("inspect", "browse", "retrieve"),
    )
)
_OBSERVES = _READS | frozenset(
    (
        *("run", "exec", "execute", "bash", "shell", "sh", "terminal", "command", "test"),
        *("tests", "build", "lint"),
    )
)


def is_observing(name: str) -> bool:
    """Return whether a tool of this name reads or runs something, so a second look makes sense.

    The verb begins the name (`read_file`) or ends it (`weather_get`).
    """
    return _has_verb(name, _OBSERVES)


def _has_verb(name: str, verbs: frozenset[str]) -> bool:
    parts = [part.casefold() for part in _PART.findall(name)]
    return bool(parts) and not verbs.isdisjoint((parts[0], parts[-1]))


def _has_failed(call: CompletedCall) -> bool:
    return call.has_failed or _FAILED.search(call.result[:LONGEST_STATUS]) is not None


def _request_in(offer: OfferedTools) -> str:
    return offer.spoken[-1] if offer.spoken else ""


def _are_alike(name: str, one: JsonValue, other: JsonValue, offer: OfferedTools) -> bool:
    """Return whether two calls of a tool have the same effect; a second look has to be exact."""
    tool = find_tool(name, offer.tools)
    schema = None if tool is None else tool.parameters
    return are_alike(one, other, schema, _request_in(offer), is_exact=is_observing(name))


def is_executed(name: str, arguments: JsonValue, offer: OfferedTools) -> bool:
    """Return whether a call succeeded since the user's last message and must not run again."""
    done = [call for call in offer.executed if not _has_failed(call)]
    is_looking, request = is_observing(name), _request_in(offer)
    same = [
        n
        for n, call in enumerate(done)
        if call.name == name and _are_alike(name, call.arguments, arguments, offer)
    ]
    names = [tool.name for tool in offer.tools]
    if not same or len(same) < count_wanted(name, arguments, request, names):
        return False
    if not is_looking:
        return True
    last = done[same[-1]]
    changes = (
        call
        for n, call in enumerate(done)
        if n > same[-1] and not _has_verb(call.name, _READS) and call not in done[:n]
    )
    is_moving = is_pending(last.result) or len({done[n].result for n in same}) > 1
    # a look at what there is mends a call that failed because of its arguments
    is_moving |= _has_failed(offer.executed[-1]) and len(same) == 1
    return not (is_moving or awaits_change(request, last.result) or any(changes))


def find_failed_call(name: str, arguments: JsonValue, offer: OfferedTools) -> CompletedCall | None:
    """Return the same call with its result if it failed and would fail again, None otherwise.

    It may succeed if the failure is one that passes, such as a timeout, if it runs something, or if
    a call that may have changed something came after it. Qwen2.5-Coder 0.5B and 1.5B repeated
    `delete_note({"note_id": "12345"})` until the rule for loops stopped them.
    """
    for call in reversed(offer.executed):
        if call.name == name and _are_alike(name, call.arguments, arguments, offer):
            return call if fails_again(call) else None
        if not _has_failed(call) and not _has_verb(call.name, _READS):
            return None
    return None


def fails_again(call: CompletedCall) -> bool:
    """Return whether a call failed, and another try with the same arguments makes no sense."""
    runs_something = is_observing(call.name) and not _has_verb(call.name, _READS)
    if not _has_failed(call) or runs_something:
        return False
    return not (is_pending(call.result) or _PASSES.search(call.result[:_LONGEST_ERROR]))


def is_echo(text: str, offer: OfferedTools, *, is_retry: bool = False) -> bool:
    """Return whether a text is only JSON that repeats results and calls since the user spoke.

    It may begin with a label ("Observation:"), and break off. In a retry any JSON counts that
    holds no answer in words, also if it is broken.
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
    """Return a text without the labels of results, which may repeat line by line."""
    content = strip_label(text.lstrip())
    if len(content) == len(text.lstrip()):
        return content
    return "\n".join(map(strip_label, content.split("\n")))


def _breaks_off(text: str, offer: OfferedTools) -> bool:
    """Return whether a text is the beginning of a result, whatever its white space."""
    content = "".join(_FENCE_BEGINS.sub("", text, count=1).split())
    results = ["".join(call.result.split()) for call in offer.executed]
    is_long = len(content) >= _SHORTEST_COPY
    return is_long and any(result.startswith(content) for result in results)


def copies_result(text: str, offer: OfferedTools) -> bool:
    """Return whether a text is one of the results since the user spoke, which nobody asked for."""
    written = text.strip()
    is_copy = bool(written) and any(written == call.result.strip() for call in offer.executed)
    return is_copy and not wants_json(offer)


def words_in_json(text: str) -> str:
    """Return the only sentence in a JSON object, as in `{"ok": true, "outcome": "It is done."}`.

    Small models write an answer in JSON as well where the result before it was JSON.
    """
    values = _read_all(text) if _BEGINS_JSON.match(text) else []
    if (
        len(values) != 1
        or not isinstance(value := values[0], dict)
        or calls_in(value, is_marked=False)
    ):
        return ""
    sentences = [one for one in value.values() if isinstance(one, str) and " " in one.strip()]
    return sentences[0].strip() if len(sentences) == 1 else ""


def may_become_echo(text: str, offer: OfferedTools, *, is_retry: bool = False) -> bool:
    """Return whether a reply with this beginning may turn out to be an echo."""
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
    known = _WRAPPERS.union(*map(_keys_of, _results(offer)))
    is_whole = key[2] is not None
    return key[1] in known if is_whole else any(name.startswith(key[1]) for name in known)


def _keys_of(result: JsonValue) -> set[str]:
    objects = result if isinstance(result, list) else [result]
    return {name for one in objects if isinstance(one, dict) for name in one}


def list_shown_calls(text: str, offer: OfferedTools) -> list[WrittenCall]:
    """List the calls of offered tools that a text shows as JSON after tools have run."""
    if not offer.executed or len(text) > _LONGEST:
        return []
    return [call for call in _calls_within(text) if find_tool(call.name, offer.tools) is not None]


def repeats_line(text: str) -> bool:
    """Return whether a text repeats a line over and over, as one that is cut off may do."""
    lines = [line for line in text[-_LONGEST:].splitlines() if line.strip()][-_SAME_LINES - 1 : -1]
    return len(lines) == _SAME_LINES and len({*lines}) == 1 and len(lines[0]) >= _SENTENCE


def is_json(text: str) -> bool:
    """Return whether a text is JSON objects or lists and nothing else."""
    content = strip_label(text.lstrip())
    return _BEGINS_JSON.match(content) is not None and bool(_read_all(content))


def calls_of(text: str) -> tuple[WrittenCall, ...]:
    """Return the calls that a text consists of, if it is JSON and all of it is calls."""
    values = _read_all(text)
    calls = [calls_in(value, is_marked=False) for value in values]
    return tuple(call for group in calls for call in group) if all(calls) else ()


def is_broken_call(text: str, offer: OfferedTools) -> bool:
    """Return whether a reply after tools have run is only the beginning of a call in JSON."""
    content = text.lstrip()
    is_call = content.startswith("{") and "\n\n" not in content
    if not (is_call and offer.executed) or wants_json(offer):
        return False
    names = [tool.name for tool in offer.tools]
    return begins_plain_call(content, names) and not read_values(content, is_whole=False)


def find_foreign_calls(text: str, offer: OfferedTools) -> tuple[WrittenCall, ...]:
    """Return the calls of tools that are not offered, if a text consists of calls.

    It is an answer if the user named such a tool, or asked for JSON. Qwen2.5-Coder 1.5B ended a
    conversation with `{"name": "exit", "arguments": null}`.
    """
    calls = calls_of(text) if _BEGINS_JSON.match(text) else ()
    foreign = tuple(call for call in calls if find_tool(call.name, offer.tools) is None)
    is_named = any(call.name in words for call in foreign for words in offer.spoken)
    return () if is_named or wants_json(offer) else foreign


def is_variant(name: str, one: JsonValue, other: JsonValue, offer: OfferedTools) -> bool:
    """Return whether two calls of a tool with an effect differ only in how they are written."""
    is_known = find_tool(name, offer.tools) is not None
    if not is_known or one == other or is_observing(name):
        return False
    return _are_alike(name, one, other, offer)


def has_run(call: WrittenCall, offer: OfferedTools) -> bool:
    """Return whether a call, read as its tool's schema says, has run and must not run again."""
    tool = find_tool(call.name, offer.tools)
    if tool is None:
        return False
    checked = check(tool, call.arguments)
    arguments = checked.value if isinstance(checked, ValidArguments) else call.arguments
    return is_executed(tool.name, arguments, offer)


def _read_all(text: str) -> list[JsonValue]:
    """Read a text that consists of JSON objects and lists, or of one code fence with them."""
    content = text.strip()
    if len(content) > _LONGEST:
        return []
    if content.startswith("```") and (fenced := _FENCED.match(content)):
        content = fenced[1].strip()
    return read_values(content)


def _calls_within(text: str) -> Iterator[WrittenCall]:
    for start in envelope_starts(text)[:_MOST_BLOCKS]:
        for value in read_values(text[start:], is_whole=False)[:1]:
            yield from calls_in(value, is_marked=False)


def _is_copy(value: JsonValue, offer: OfferedTools) -> bool:
    calls = calls_in(value, is_marked=False)
    if calls:
        return all(has_run(call, offer) for call in calls)
    return any(_is_like(value, result) for result in _results(offer))


def _is_like(value: JsonValue, result: JsonValue, depth: int = _DEEPEST) -> bool:
    """Return whether a value is a result, a part of it, a wrapping, or made up like it.

    Made up like it are objects with the same members, and lists of such.
    """
    if value == result:
        return True
    if isinstance(result, list):
        items = value if isinstance(value, list) else [value]
        if items and all(any(_has_same_members(item, one) for one in result) for item in items):
            return True
    if isinstance(result, dict) and (value in result.values() or _has_same_members(value, result)):
        return True
    if not depth:
        return False
    members = (
        value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    )
    return any(_is_like(_parse(one), result, depth - 1) for one in members if _may_wrap(one))


def _has_same_members(value: JsonValue, result: JsonValue) -> bool:
    if not (isinstance(value, dict) and isinstance(result, dict)):
        return value == result
    names, known = value.keys(), result.keys()
    return bool(names and known) and (names <= known or known <= names)


def _may_wrap(value: JsonValue) -> bool:
    return isinstance(value, dict | list) or (isinstance(value, str) and value[:1] in ("{", "["))


def _parse(value: JsonValue) -> JsonValue:
    """Return the JSON in a text, or the value itself."""
    try:
        return json.parse(value) if isinstance(value, str) else value
    except ValueError:
        return value


def _results(offer: OfferedTools) -> list[JsonValue]:
    """Read the results that a reply may copy; a long one would be read again with every piece."""
    results: list[JsonValue] = []
    for call in offer.executed:
        if len(call.result) > _LONGEST:
            continue
        try:
            results.append(json.parse(call.result))
        except ValueError:
            continue
    return results


def wants_json(offer: OfferedTools) -> bool:
    """Return whether the user or the operator asked for JSON, or for a result word for word."""
    is_wanted = any(_WANTS_JSON.search(text) for text in offer.spoken)
    return is_wanted or any(_DEMANDS_JSON.search(text) for text in offer.instructions)
