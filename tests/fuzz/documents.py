"""Nearly valid documents: valid ones with arbitrary values in some places."""

from collections.abc import Iterator
from typing import TypeAlias

from hypothesis import strategies as st

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue

Place: TypeAlias = tuple[str | int, ...]

_SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["", "a", "tool", "function", "data:,", "{}", "[1]", "\0", "\u2028"])
    | st.text(max_size=5)
)
VALUES: st.SearchStrategy[JsonValue] = st.recursive(
    _SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["a", "type", "name", "id", "index"]), inner, max_size=3)
    ),
    max_leaves=5,
)


def nearly(good: JsonObject) -> st.SearchStrategy[JsonObject]:
    """Return documents like `good` with up to three replaced values or added members."""
    places = list(_places(good, ()))
    change = st.tuples(st.sampled_from(places), VALUES, st.sampled_from(["", "", "", "more"]))
    return st.lists(change, max_size=3).map(lambda changes: _changed(good, changes))


def _places(value: JsonValue, path: Place) -> Iterator[Place]:
    if path:
        yield path
    if isinstance(value, dict):
        for name, member in value.items():
            yield from _places(member, (*path, name))
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from _places(item, (*path, number))


def _changed(good: JsonObject, changes: list[tuple[Place, JsonValue, str]]) -> JsonObject:
    copy = json.parse(json.dump(good))
    for path, value, more in changes:
        _put(copy, path, value, more)
    return copy if isinstance(copy, dict) else {}


def _put(document: JsonValue, path: Place, value: JsonValue, more: str) -> None:
    """Replace a value, or add to its object, unless an earlier change removed it."""
    match document, path:
        case dict(), (last,):
            document[more or str(last)] = value
        case list(), (int(last),) if last < len(document):
            document[last] = value
        case dict(), (step, *rest) if rest:
            _put(document.get(str(step)), tuple(rest), value, more)
        case list(), (int(step), *rest) if rest and step < len(document):
            _put(document[step], tuple(rest), value, more)
        case _:
            pass
