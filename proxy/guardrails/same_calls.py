"""Whether one call would do again what another has done, and how often the user wants that.

Small models vary a call that they repeat: `5.0` for `5`, an optional member with its default, or
other capital letters in a subject. Compared member by member, such a mail was sent twice.
"""

import re
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation

from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.tools import properties_of

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
_PART = re.compile(r"[A-Za-z][a-z]+")
_AWAITS = re.compile(
    r"\b(?:wait|poll|monitor|watch|keep (?:asking|checking)|warte\w*|esper[ae]\w*)\b|等",
    re.IGNORECASE,
)
_IS_OVER = re.compile(
    r"\b(?:done|finished|complete[d]?|succe\w+|fail\w*|ready|passed|error)\b", re.IGNORECASE
)


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
        words = {part.casefold() for part in _PART.findall(clause)}
        named = [tool for tool in tools if not words.isdisjoint(_parts(tool))]
        values = arguments.values() if isinstance(arguments, dict) else ()
        is_held = any(isinstance(value, str) and value and value in clause for value in values)
        if name in named or is_held or not named:
            wanted = max(wanted, _COUNTS.get(word) or int(word))
    return wanted


def _parts(name: str) -> set[str]:
    return {part.casefold() for part in _PART.findall(name)}


def awaits_change(request: str, result: str) -> bool:
    """Return whether the user waits for something that a result does not report yet."""
    return _AWAITS.search(request) is not None and _IS_OVER.search(result) is None
