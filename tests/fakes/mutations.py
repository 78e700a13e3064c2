"""Requests that are sound but for one place."""

from collections.abc import Iterator

from hypothesis import strategies as st

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue


@st.composite
def mutated(draw: st.DrawFn, document: bytes, anything: st.SearchStrategy[JsonValue]) -> bytes:
    """Put anything else in a place of a request that is sound, or leave it out."""
    request = json.parse(document)
    holder, member = draw(st.sampled_from([*_places_in(request)]))
    if draw(st.booleans()):
        holder[member] = draw(anything)
    else:
        del holder[member]
    return json.dump(request)


def _places_in(value: JsonValue) -> Iterator[tuple[JsonObject, str]]:
    if isinstance(value, list):
        for one in value:
            yield from _places_in(one)
    elif isinstance(value, dict):
        for name, one in value.items():
            yield value, name
            yield from _places_in(one)
