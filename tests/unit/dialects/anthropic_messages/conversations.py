"""Generates histories of the Messages API, and rewrites their JSON in equivalent forms."""

from collections.abc import Callable

from hypothesis import strategies as st

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.dialects.anthropic_messages.dialect import MessagesDialect
from proxy.dialects.dialect import Client, Decoded, IdsAndClock
from proxy.dialects.foreign_history import sign

DIALECT = MessagesDialect(IdsAndClock(now=lambda: 0.0, token=lambda: "abc"))
MARK: JsonObject = {"type": "ephemeral", "ttl": "5m"}
PICTURE: JsonObject = {
    "type": "image",
    "source": {"type": "base64", "media_type": "image/png", "data": "AA=="},
}
TOOLS: list[JsonValue] = [
    {"name": "look", "description": "Looks.", "input_schema": {"type": "object"}},
    {"name": "later", "input_schema": {"type": "object"}, "defer_loading": True},
    {"name": "never", "input_schema": {"type": "object"}, "defer_loading": True},
    {"name": "go", "input_schema": {"type": "object", "properties": {"x": {"type": "number"}}}},
    {"name": "last", "input_schema": {"type": "object"}, "defer_loading": True},
]

words = st.text(min_size=1, max_size=12)
_texts = st.builds(lambda text: _text(text), words)
_values: st.SearchStrategy[JsonValue] = st.recursive(
    st.none() | st.booleans() | st.integers() | words, st.lists, max_leaves=4
)
_inputs: st.SearchStrategy[JsonObject] = st.dictionaries(words, _values, max_size=3)


def _text(text: str) -> JsonObject:
    return {"type": "text", "text": text}


def _thought(text: str, signs: bool) -> JsonObject:
    return {"type": "thinking", "thinking": text, "signature": sign(text) if signs else ""}


_pictures: st.SearchStrategy[JsonObject] = st.just(PICTURE)
_said = st.lists(_texts | _pictures, min_size=1, max_size=3)
_thoughts = st.lists(st.builds(_thought, words, st.booleans()), max_size=2)


@st.composite
def histories(draw: st.DrawFn) -> list[JsonObject]:
    """Generate user turns; each is a loop of tool calls that ends with an answer."""
    messages: list[JsonObject] = []
    for turn in range(draw(st.integers(1, 3))):
        messages.append({"role": "user", "content": [*draw(_said)]})
        messages += draw(_remarks())
        for step in range(draw(st.integers(0, 2))):
            messages += draw(_rounds(f"t{turn}_{step}"))
        answer: list[JsonValue] = [*draw(_thoughts), *draw(st.lists(_texts, max_size=2))]
        messages.append({"role": "assistant", "content": answer})
    return messages


@st.composite
def _remarks(draw: st.DrawFn) -> list[JsonObject]:
    remarks = draw(st.lists(st.lists(_texts, min_size=1, max_size=2), max_size=2))
    return [{"role": "system", "content": [*remark]} for remark in remarks]


@st.composite
def _rounds(draw: st.DrawFn, name: str) -> list[JsonObject]:
    count = draw(st.integers(1, 2))
    calls: list[JsonValue] = [
        {
            "type": "tool_use",
            "id": f"{name}_{number}",
            "name": draw(st.sampled_from(("look", "go"))),
            "input": draw(_inputs),
        }
        for number in range(count)
    ]
    results: list[JsonValue] = [
        {
            "type": "tool_result",
            "tool_use_id": f"{name}_{number}",
            "content": [*draw(_said), *draw(st.lists(_references(), max_size=1))],
            "is_error": draw(st.booleans()),
        }
        for number in range(count)
    ]
    blocks: list[JsonValue] = [*draw(_thoughts), *draw(st.lists(_texts, max_size=1)), *calls]
    answered: list[JsonValue] = [*results, *draw(st.lists(_texts, max_size=1))]
    return [
        {"role": "assistant", "content": blocks},
        {"role": "user", "content": draw(st.permutations(answered))},
        *draw(_remarks()),
    ]


def _references() -> st.SearchStrategy[JsonObject]:
    names = st.sampled_from(("later", "last", "gone"))
    return st.builds(lambda name: {"type": "tool_reference", "tool_name": name}, names)


def body(messages: list[JsonObject], **members: JsonValue) -> bytes:
    history: list[JsonValue] = [*messages]
    return json.dump({"model": "m", "max_tokens": 100, "messages": history, **members})


Choose = Callable[[], bool]


def rewritten(messages: list[JsonObject], choose: Choose) -> list[JsonObject]:
    """Return an equivalent history, e.g. with the string "a" for the list of one text block."""
    return [{**message, "content": _content(message["content"], choose)} for message in messages]


def _content(content: JsonValue, choose: Choose) -> JsonValue:
    assert isinstance(content, list)
    blocks = [_block(block, choose) for block in content if isinstance(block, dict)]
    if len(blocks) == 1 and blocks[0]["type"] == "text" and choose():
        return blocks[0]["text"]
    empty: list[JsonValue] = [_text("")] if choose() else []
    return [*empty, *blocks, *empty]


def _block(block: JsonObject, choose: Choose) -> JsonObject:
    changed = dict(block)
    if choose():
        changed["cache_control"] = MARK
    if choose() and block["type"] == "text":
        changed["citations"] = None
    if block["type"] == "tool_result":
        changed["content"] = _content(block["content"], choose)
        if not block["is_error"] and choose():
            del changed["is_error"]
    if block["type"] == "thinking" and not block["signature"] and choose():
        del changed["signature"]
    return changed


def decode_request(document: bytes, *, is_count: bool = False) -> Decoded:
    return (DIALECT.decode_count if is_count else DIALECT.decode)(document, Client())
