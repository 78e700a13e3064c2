"""Decides whether a call from text repeats a call that has already run.

`is_executed` returns whether a call has succeeded since the user's last message and must not run
again. `find_failed_call` returns an earlier equal call that failed and would fail again.

Small models vary the calls that they repeat: they write `5.0` for `5`, add an optional member with
its default, or change the capital letters of a subject. An exact comparison missed such a repeat,
and a mail was sent twice; therefore `are_alike` compares the effects of two calls.

The client receives a repeated call in two cases. Either the earlier result reported work in
progress, or the tool reads or runs something (`read_file`, `run_tests`) that may have changed since
the earlier call. Structured calls may be polls, so only the rule for loops applies to them
(`transcript.find_loop`).
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

# Results in JSON that report a failure, although the client does not mark the call as failed.
_FAILED = re.compile(
    r"\"(?:ok|success|succeeded)\"\s*:\s*false|\"status\"\s*:\s*\"(?:fail|error|reject)"
)
# Words in an error after which the same call may succeed later.
_TEMPORARY = re.compile(
    r"\b(?:timed? ?-?out|temporar\w*|unavailable|overloaded|busy|rate.?limit\w*|too many requests"
    r"|connection|network|locked|(?:un)?reachable|offline|refused|reset|later|429|50[0234])\b",
    re.IGNORECASE,
)
# Characters of a result that are searched: a longer text may contain such words by chance.
_LONGEST_ERROR = 2_000
_PART = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
# Verbs in the names of tools that only read, so that a repeated call has no effect.
_READS = frozenset(
    (
        *("get", "list", "read", "search", "find", "fetch", "show", "view", "look", "lookup"),
        *("query", "check", "describe", "count", "status", "stat", "cat", "ls", "grep", "glob"),
        *("inspect", "browse", "retrieve"),
    )
)
# Verbs of tools that read something, or run something that may have changed since the last call. A
# failed run, such as a test run, is also a result, so the same run makes sense again.
_OBSERVES = _READS | frozenset(
    (
        *("run", "exec", "execute", "bash", "shell", "sh", "terminal", "command", "test"),
        *("tests", "build", "lint"),
    )
)
# A schema with one of these keywords may allow members that it does not list under `properties`.
_OPEN_KEYWORDS = {
    "patternProperties",
    "unevaluatedProperties",
    "allOf",
    "anyOf",
    "oneOf",
    "$ref",
    "if",
}
_EMPTY: tuple[JsonValue, ...] = (None, "", [], {})  # equivalent to an absent optional member
# How often the user requests a call: "twice", "three times", "zweimal", "两次".
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
# The ends of clauses: punctuation, and words such as "and" and "then" in several languages.
_CLAUSE = re.compile(
    r"[,.;:!?\uff0c\u3002\uff1b\uff01\uff1f\n]+|\b(?:and|then|und|dann|y|luego|et|puis)\b",
    re.IGNORECASE,
)
_WORD = re.compile(r"[A-Za-z][a-z]+")
# Words of a request to wait for an event, and words of a result that reports the event.
_AWAITS = re.compile(
    r"\b(?:wait|poll|monitor|watch|keep (?:asking|checking)|warte\w*|esper[ae]\w*)\b|等",
    re.IGNORECASE,
)
_IS_OVER = re.compile(
    r"\b(?:done|finished|complete[d]?|succe\w+|fail\w*|ready|passed|error)\b", re.IGNORECASE
)


def is_observing(name: str) -> bool:
    """Return whether a tool reads or runs something, so that repeating its call makes sense.

    The verb begins the name (`read_file`) or ends it (`weather_get`).
    """
    return _has_verb(name, _OBSERVES)


def _has_verb(name: str, verbs: frozenset[str]) -> bool:
    parts = [part.casefold() for part in _PART.findall(name)]
    return bool(parts) and not verbs.isdisjoint((parts[0], parts[-1]))


def _has_failed(call: CompletedCall) -> bool:
    return call.has_failed or _FAILED.search(call.result[:LONGEST_STATUS]) is not None


def _are_alike(name: str, left: JsonValue, right: JsonValue, offer: OfferedTools) -> bool:
    """Return whether two calls have the same effect: for observing tools, equal arguments."""
    tool = find_tool(name, offer.tools)
    schema = None if tool is None else tool.parameters
    return are_alike(left, right, schema, offer.request, is_exact=is_observing(name))


def is_executed(name: str, arguments: JsonValue, offer: OfferedTools) -> bool:
    """Return whether a call succeeded since the user's last message and must not run again."""
    done = [call for call in offer.executed if not _has_failed(call)]
    request = offer.request
    alike = [
        index
        for index, call in enumerate(done)
        if call.name == name and _are_alike(name, call.arguments, arguments, offer)
    ]
    names = [tool.name for tool in offer.tools]
    if not alike or len(alike) < count_wanted(name, arguments, request, names):
        return False
    if not is_observing(name):
        return True
    last = done[alike[-1]]
    changes = (
        call
        for index, call in enumerate(done)
        if index > alike[-1] and not _has_verb(call.name, _READS) and call not in done[:index]
    )
    may_differ = is_pending(last.result) or len({done[index].result for index in alike}) > 1
    # After a failed call, reading once more helps the model to correct the arguments of that call.
    may_differ |= _has_failed(offer.executed[-1]) and len(alike) == 1
    return not (may_differ or awaits_change(request, last.result) or any(changes))


def find_failed_call(name: str, arguments: JsonValue, offer: OfferedTools) -> CompletedCall | None:
    """Return the earlier equal call if it failed and would fail again, otherwise None.

    The call may succeed now in three cases: the failure was temporary, such as a timeout; the tool
    runs something, such as tests; or a later call may have changed the state. Qwen2.5-Coder 0.5B
    and 1.5B repeated `delete_note({"note_id": "12345"})` until the rule for loops stopped them.
    """
    for call in reversed(offer.executed):
        if call.name == name and _are_alike(name, call.arguments, arguments, offer):
            return call if fails_again(call) else None
        if not _has_failed(call) and not _has_verb(call.name, _READS):
            return None
    return None


def fails_again(call: CompletedCall) -> bool:
    """Return whether a call failed and the same arguments would fail again."""
    runs_something = is_observing(call.name) and not _has_verb(call.name, _READS)
    if not _has_failed(call) or runs_something:
        return False
    return not (is_pending(call.result) or _TEMPORARY.search(call.result[:_LONGEST_ERROR]))


def is_variant(name: str, left: JsonValue, right: JsonValue, offer: OfferedTools) -> bool:
    """Return whether two calls of a tool with an effect are unequal but have the same effect."""
    is_known = find_tool(name, offer.tools) is not None
    if not is_known or left == right or is_observing(name):
        return False
    return _are_alike(name, left, right, offer)


def has_run(call: WrittenCall, offer: OfferedTools) -> bool:
    """Like `is_executed`, for a call whose arguments are not yet coerced to the schema."""
    tool = find_tool(call.name, offer.tools)
    if tool is None:
        return False
    checked = check(tool, call.arguments)
    arguments = checked.value if isinstance(checked, ValidArguments) else call.arguments
    return is_executed(tool.name, arguments, offer)


def are_alike(
    left: JsonValue, right: JsonValue, schema: JsonValue, request: str, *, is_exact: bool
) -> bool:
    """Return whether two values have the same effect.

    An optional member counts as absent if it is empty, or if it has the default that the `schema`
    declares. If `is_exact` is False, these differences do not count either:

    - Members that the schema does not list. Qwen2.5-Coder 0.5B placed an order again with the
      additional member `total`, which it copied from the result.
    - Differences of letter case and white space between texts, unless the user's `request` contains
      both texts.
    """
    known = schema if isinstance(schema, dict) else {}
    match left, right:
        case dict(), dict():
            schemas, required = properties_of(known), known.get("required")
            needed = required if isinstance(required, list) else []
            lists_all = not is_exact and _lists_all_members(known)
            return all(
                (lists_all and name not in schemas and (name in left) is not (name in right))
                or _is_without_effect(
                    left, right, name, schemas.get(name), is_needed=name in needed
                )
                or (
                    name in left
                    and name in right
                    and are_alike(
                        left[name], right[name], schemas.get(name), request, is_exact=is_exact
                    )
                )
                for name in {**left, **right}
            )
        case list(), list():
            items = known.get("items")
            return len(left) == len(right) and all(
                are_alike(item, other, items, request, is_exact=is_exact)
                for item, other in zip(left, right, strict=True)
            )
        case str(), str() if left != right and not is_exact:
            is_same = " ".join(left.casefold().split()) == " ".join(right.casefold().split())
            return is_same and not (left in request and right in request)
        case _ if isinstance(left, str) is not isinstance(right, str):  # `5.0` for "5"
            number = _read_number(left)
            return number is not None and number == _read_number(right)
        case _:
            return left == right and isinstance(left, bool) is isinstance(right, bool)


def _lists_all_members(schema: JsonObject) -> bool:
    """Return whether a schema lists properties, and has no keyword that allows other members."""
    is_open = schema.get("additionalProperties", False) is not False
    return bool(properties_of(schema)) and not is_open and _OPEN_KEYWORDS.isdisjoint(schema)


def _is_without_effect(
    left: JsonObject, right: JsonObject, name: str, schema: JsonValue, *, is_needed: bool
) -> bool:
    """Return whether an optional member is absent in one object and has no effect in the other."""
    if name in left and name in right:
        return False
    value = left[name] if name in left else right[name]
    default = schema.get("default") if isinstance(schema, dict) else None
    if isinstance(value, dict) and not is_needed:
        return all(
            _is_without_effect(value, {}, inner, properties_of(schema).get(inner), is_needed=False)
            for inner in value
        )
    return not is_needed and (value in _EMPTY or value == default)


def _read_number(value: JsonValue) -> Decimal | None:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    try:
        return Decimal(str(value).strip())
    except InvalidOperation:
        return None


def count_wanted(name: str, arguments: JsonValue, request: str, tools: Sequence[str]) -> int:
    """Return how many times the user requests a call: 2 for "send it twice", usually 1.

    The number in a clause applies to this call if the clause names the tool or contains a value of
    the arguments. If the clause names none of the offered `tools`, its number applies to every
    call.
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
        has_value = any(isinstance(value, str) and value and value in clause for value in values)
        if name in named or has_value or not named:
            wanted = max(wanted, _COUNTS.get(word) or int(word))
    return wanted


def _parts(name: str) -> set[str]:
    return {part.casefold() for part in _WORD.findall(name)}


def awaits_change(request: str, result: str) -> bool:
    """Return whether the user wants to wait for an event, and the result does not report it yet."""
    return _AWAITS.search(request) is not None and _IS_OVER.search(result) is None
