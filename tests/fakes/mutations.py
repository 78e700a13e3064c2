"""Valid request bodies with one defect."""

from collections.abc import Iterator

from hypothesis import strategies as st

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue


@st.composite
def mutated(draw: st.DrawFn, document: bytes, anything: st.SearchStrategy[JsonValue]) -> bytes:
    """Replace one value of a valid request with anything, or remove it."""
    request = json.parse(document)
    holder, member = draw(st.sampled_from([*_places_in(request)]))
    if draw(st.booleans()):
        holder[member] = draw(anything)
    else:
        del holder[member]
    return json.dump(request)


def _places_in(value: JsonValue) -> Iterator[tuple[JsonObject, str]]:
    if isinstance(value, list):
        for item in value:
            yield from _places_in(item)
    elif isinstance(value, dict):
        for name, item in value.items():
            yield value, name
            yield from _places_in(item)
