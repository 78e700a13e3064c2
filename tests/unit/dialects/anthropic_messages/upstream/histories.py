"""Generates conversations in chat completions; each user turn is a loop of tool calls."""

from hypothesis import strategies as st

from proxy.conversation.json import JsonObject, JsonValue
from tests.fakes.histories import call, called, result, said

PICTURE: JsonObject = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}

_words = st.text(max_size=8)
_texts = st.builds(lambda text: _text(text), _words)
_pictures = st.just(PICTURE)
_parts: st.SearchStrategy[JsonValue] = _texts | _pictures
_lists: st.SearchStrategy[JsonValue] = st.builds(
    lambda parts: [*parts], st.lists(_parts, max_size=3)
)
_contents: st.SearchStrategy[JsonValue] = _words | _lists
_arguments = st.sampled_from(('{"a": 1.0}', "{}", "", "[1]", "{", '{ "b":[ ] }'))
_ids = st.sampled_from(("0", "a.b", "a_b", "", "call|1"))


def _text(text: str) -> JsonObject:
    return {"type": "text", "text": text}


@st.composite
def turns(draw: st.DrawFn) -> list[list[JsonObject]]:
    """Generate the messages of each turn of a conversation."""
    first = [said("system", draw(_words)) for _ in range(draw(st.integers(0, 2)))]
    made = [draw(_turn()) for _ in range(draw(st.integers(1, 3)))]
    return [[*first, *made[0]], *made[1:]]


@st.composite
def _turn(draw: st.DrawFn) -> list[JsonObject]:
    messages = [said("user", draw(_contents)), *draw(_remarks())]
    for _ in range(draw(st.integers(0, 2))):
        ids = draw(st.lists(_ids, min_size=1, max_size=2, unique=True))
        calls: list[JsonValue] = [call(id_, arguments=draw(_arguments)) for id_ in ids]
        messages.append(called(*calls, content=draw(st.none() | _words)))
        messages += [result(id_, draw(_contents)) for id_ in draw(st.permutations(ids))]
        messages += draw(_remarks())
    return [*messages, said("assistant", draw(_words), reasoning_content=draw(_words))]


@st.composite
def _remarks(draw: st.DrawFn) -> list[JsonObject]:
    roles = st.sampled_from(("system", "developer"))
    return [said(draw(roles), draw(_words)) for _ in range(draw(st.integers(0, 1)))]
