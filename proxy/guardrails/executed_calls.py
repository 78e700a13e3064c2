"""Calls that have run, and whether another call would do the same again.

`is_executed` decides that a call has succeeded since the user's last message and must not run
again; `find_failed_call` that it would fail again. Small models vary a call that they repeat: `5.0`
for `5`, an optional member with its default, or other capital letters in a subject. A comparison
member by member missed such a repeat and sent a mail twice, so `are_alike` compares the effects.

A repeated call is passed on in two cases. Its result said that something is still going on, or it
observes something (`read_file`, `run_tests`) and a new call that may have changed it came after it.
Only calls that were read from text are judged here. A call that the backend recognized itself may
be a poll and stays under the rule for loops (`transcript.find_loop`).
"""

import re
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation

from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.tools import WrittenCall, properties_of
from proxy.guardrails.names import find_tool
from proxy.guardrails.offer import OfferedTools
from proxy.guardrails.schemas.arguments import ValidArguments, check
from proxy.guardrails.transcript import LONGEST_STATUS, CompletedCall, is_pending

_FAILED = re.compile(
    r"\"(?:ok|success|succeeded)\"\s*:\s*false|\"status\"\s*:\s*\"(?:fail|error|reject)"
)
_PASSES = re.compile(
    r"\b(?:timed? ?-?out|temporar\w*|unavailable|overloaded|busy|rate.?limit\w*|too many requests"
    r"|connection|network|locked|(?:un)?reachable|offline|refused|reset|later|429|50[0234])\b",
    re.IGNORECASE,
)
_LONGEST_ERROR = 2_000
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
_NOTHING: tuple[JsonValue, ...] = (None, "", [], {})  # equals the absence of an optional member
_TIMES = re.compile(
    r"\b(?P<word>twice|thrice|(?:zwei|drei|vier)mal)\b"
    r"|\b(?P<count>[2-9]|two|three|four|zwei|drei|vier|dos|tres|cuatro|deux|trois|quatre)"
    r"[ ]?(?:x|times|copies|mal|veces|fois)\b"
    r"|(?P<sign>[2-9两二三四])[次遍份]",
    re.IGNORECASE,
)
_COUNTS = {
    **dict.fromkeys(("twice", "two", "zweimal", "zwei", "dos", "deux", "两", "二"), 2),
    **dict.fromkeys(("thrice", "three", "dreimal", "drei", "tres", "trois", "三"), 3),
    **dict.fromkeys(("four", "viermal", "vier", "cuatro", "quatre", "四"), 4),
}
_CLAUSE = re.compile(
    r"[,.;:!?\uff0c\u3002\uff1b\uff01\uff1f\n]+|\b(?:and|then|und|dann|y|luego|et|puis)\b",
    re.IGNORECASE,
)
_WORD = re.compile(r"[A-Za-z][a-z]+")
_AWAITS = re.compile(
    r"\b(?:wait|poll|monitor|watch|keep (?:asking|checking)|warte\w*|esper[ae]\w*)\b|等",
    re.IGNORECASE,
)
_IS_OVER = re.compile(
    r"\b(?:done|finished|complete[d]?|succe\w+|fail\w*|ready|passed|error)\b", re.IGNORECASE
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


def are_alike(
    one: JsonValue, other: JsonValue, schema: JsonValue, request: str, *, is_exact: bool
) -> bool:
    """Return whether two values have the same effect.

    Members with the default that the `schema` declares count as absent, as do empty optional ones.
    Unless it `is_exact`, case and white space make no difference, except between two texts that
    the user's `request` both contains.
    """
    known = schema if isinstance(schema, dict) else {}
    match one, other:
        case dict(), dict():
            schemas, required = properties_of(known), known.get("required")
            needed = required if isinstance(required, list) else []
            return all(
                _is_idle(one, other, name, schemas.get(name), is_needed=name in needed)
                or (
                    name in one
                    and name in other
                    and are_alike(
                        one[name], other[name], schemas.get(name), request, is_exact=is_exact
                    )
                )
                for name in {**one, **other}
            )
        case list(), list():
            items = known.get("items")
            return len(one) == len(other) and all(
                are_alike(left, right, items, request, is_exact=is_exact)
                for left, right in zip(one, other, strict=True)
            )
        case str(), str() if one != other and not is_exact:
            is_one = " ".join(one.casefold().split()) == " ".join(other.casefold().split())
            return is_one and not (one in request and other in request)
        case _ if isinstance(one, str) is not isinstance(other, str):
            number = _read_number(one)
            return number is not None and number == _read_number(other)
        case _:
            return one == other and isinstance(one, bool) is isinstance(other, bool)


def _is_idle(
    one: JsonObject, other: JsonObject, name: str, schema: JsonValue, *, is_needed: bool
) -> bool:
    """Return whether a member is absent in one of two objects, and says nothing in the other."""
    if name in one and name in other:
        return False
    value = one[name] if name in one else other[name]
    default = schema.get("default") if isinstance(schema, dict) else None
    if isinstance(value, dict) and not is_needed:
        return all(
            _is_idle(value, {}, inner, properties_of(schema).get(inner), is_needed=False)
            for inner in value
        )
    return not is_needed and (value in _NOTHING or value == default)


def _read_number(value: JsonValue) -> Decimal | None:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    try:
        return Decimal(str(value).strip())
    except InvalidOperation:
        return None


def count_wanted(name: str, arguments: JsonValue, request: str, tools: Sequence[str]) -> int:
    """Return how often a request wants a call: "send it twice" names a number, most name none.

    A number counts for the tool that its clause names, or whose values it contains; where it names
    none of the offered `tools`, for every call.
    """
    wanted = 1
    clauses = _CLAUSE.split(request)
    for clause in clauses:
        match = _TIMES.search(clause)
        if match is None:
            continue
        word = (match["word"] or match["count"] or match["sign"]).casefold()
        words = {part.casefold() for part in _WORD.findall(clause)}
        named = [tool for tool in tools if not words.isdisjoint(_parts(tool))]
        values = arguments.values() if isinstance(arguments, dict) else ()
        is_held = any(isinstance(value, str) and value and value in clause for value in values)
        if name in named or is_held or not named:
            wanted = max(wanted, _COUNTS.get(word) or int(word))
    return wanted


def _parts(name: str) -> set[str]:
    return {part.casefold() for part in _WORD.findall(name)}


def awaits_change(request: str, result: str) -> bool:
    """Return whether the user waits for something that a result does not report yet."""
    return _AWAITS.search(request) is not None and _IS_OVER.search(result) is None
