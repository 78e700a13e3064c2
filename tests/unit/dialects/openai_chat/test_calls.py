import pytest

from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.replies import ReplyInProgress, ToolCallArgumentsDelta
from proxy.conversation.tools import WrittenCall
from proxy.dialects.openai_chat.calls import CallsInProgress


def fragment(
    index: int | None = None,
    call_id: str | None = None,
    name: str | None = None,
    arguments: JsonValue = None,
) -> JsonObject:
    written: JsonObject = {} if index is None else {"index": index}
    if call_id is not None:
        written["id"] = call_id
    written["function"] = {"name": name, "arguments": arguments}
    return written


def read(*chunks: list[JsonObject]) -> list[WrittenCall]:
    calls, reply = CallsInProgress(), ReplyInProgress()
    for fragments in chunks:
        for position, written in enumerate(fragments):
            for event in calls.add(position, written):
                reply.add(event)
    for event in calls.finish():
        reply.add(event)
    return list(reply.finish("tool_calls").calls)


TWO = [WrittenCall("f", '{"a":1}', "c1"), WrittenCall("g", "{}", "c2")]


@pytest.mark.parametrize(
    "chunks",
    [
        [[fragment(0, "c1", "f", '{"a":1}'), fragment(1, "c2", "g", "{}")]],
        [[fragment(0, "c1", "f", '{"a"')], [fragment(0, None, None, ":1}")],
         [fragment(1, "c2", "g", "{}")]],
        [[fragment(0, "c1", "f")], [fragment(1, "c2", "g")],
         [fragment(0, None, None, '{"a":1}'), fragment(1, None, None, "{}")]],
        [[fragment(0, "c1", "f", '{"a"')], [fragment(0, "c1", "f", ":1}")],
         [fragment(1, "c2", "g", "{}")]],
        [[fragment(0, "c1", "f", '{"a"')], [fragment(0, "", "", ":1}")],
         [fragment(0, "c2", "g", "{")], [fragment(0, None, None, "}")]],
        [[fragment(0, "c1", "f", '{"a"')], [fragment(0, "c2", "g", "{}")],
         [fragment(0, "c1", None, ":1}")]],
        [[fragment(None, "c1", "f", '{"a":1}'), fragment(None, "c2", "g", "{}")]],
        [[fragment(None, "c1", "f", '{"a"')], [fragment(None, None, None, ":1}")],
         [fragment(None, "c2", "g", "{")], [fragment(None, "c2", None, "}")]],
        [[fragment(7, "c1", "f", {"a": 1})], [fragment(3, "c2", "g", {})]],
        [[fragment(0, "c1", None, '{"a"')], [fragment(0, None, "f", ":1}")],
         [fragment(1, "c2", "g", "{}")]],
    ],
    ids=[
        "whole calls", "one after the other", "side by side", "the name again and again",
        "every index 0", "every index 0 and the first again", "no index, whole",
        "no index, in fragments", "odd indexes and objects", "the name late",
    ],
)  # fmt: skip
def test_calls_are_told_apart(chunks: list[list[JsonObject]]) -> None:
    assert read(*chunks) == TWO


@pytest.mark.parametrize("index", [0, None])
def test_without_ids_another_name_is_another_call(index: int | None) -> None:
    assert read(
        [fragment(index, None, "f", "{}")],
        [fragment(index, None, "f", "")],
        [fragment(index, None, "g", "{}")],
    ) == [WrittenCall("f", "{}"), WrittenCall("g", "{}")]


def test_an_id_that_comes_late_belongs_to_the_call_at_its_index() -> None:
    assert read([fragment(0, None, "f", "{")], [fragment(0, "c1", None, "}")]) == [
        WrittenCall("f", "{}")
    ]


def test_indexes_count_more_than_ids() -> None:
    assert read([fragment(0, "c", "f", "{}")], [fragment(1, "c", "g", "{}")]) == [
        WrittenCall("f", "{}", "c"),
        WrittenCall("g", "{}", "c"),
    ]


def test_a_call_that_never_gets_a_name_is_still_a_call() -> None:
    assert read([fragment(0, "c1", None, "{}")], [{"index": 1}]) == [
        WrittenCall("", "{}", "c1"),
        WrittenCall("", ""),
    ]


def test_a_function_that_is_no_object_is_nonsense() -> None:
    with pytest.raises(ValueError, match="no object"):
        read([{"index": 0, "function": "f"}])


def test_a_call_goes_on_once_it_has_a_name() -> None:
    calls = CallsInProgress()
    calls.add(0, {"index": 3, "id": "a", "function": {"arguments": "{"}})
    assert calls.go_on(3, ["}"]) is None
    calls.add(0, {"index": 3, "function": {"name": "look"}})
    assert calls.go_on(3, ["", "}"]) == [ToolCallArgumentsDelta(0, "}")]
    assert calls.go_on(4, ["}"]) is None
