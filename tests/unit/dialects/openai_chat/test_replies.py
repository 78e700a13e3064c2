import pytest

from proxy import bounds
from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.replies import (
    ReplyFinished,
    ReplyInProgress,
    ToolCallArgumentsDelta,
    ToolCallStarted,
)
from proxy.conversation.tools import WrittenCall
from proxy.dialects.openai_chat.chunks import as_fragment
from proxy.dialects.openai_chat.replies import (
    CallsInProgress,
    ChunkDecoder,
    ReplyPart,
)


def fragment(
    index: int | None = None,
    call_id: str | None = None,
    name: str | None = None,
    arguments: JsonValue = None,
) -> JsonObject:
    body: JsonObject = {} if index is None else {"index": index}
    if call_id is not None:
        body["id"] = call_id
    body["function"] = {"name": name, "arguments": arguments}
    return body


def read_calls(*chunks: list[JsonObject]) -> list[WrittenCall]:
    calls, reply = CallsInProgress(), ReplyInProgress()
    for fragments in chunks:
        for position, fragment_ in enumerate(fragments):
            for event in calls.add(position, as_fragment(fragment_)):
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
        # a new id for every fragment
        [[fragment(0, "c1", "f")], [fragment(0, "x", None, '{"a"')], [fragment(0, "y", "", ":1}")],
         [fragment(1, "c2", "g")], [fragment(1, "z", None, "{}")]],
        [[fragment(0, "c1", "f", "")], [fragment(0, "x", "f", '{"a"')],
         [fragment(0, "y", "f", ":1}")], [fragment(0, "c2", "g", "{}")]],
        [[fragment(None, "c1", "f")], [fragment(None, "x", None, '{"a":1}')],
         [fragment(None, "c2", "g", "{}")]],
        [[fragment(0, "c1", None, '{"a"')], [fragment(0, None, "f", ":1}")],
         [fragment(1, "c2", "g", "{}")]],
    ],
    ids=[
        "whole calls", "consecutive fragments", "interleaved fragments", "a repeated id and name",
        "the index 0 for both calls", "interleaved fragments with the index 0", "no index, whole",
        "no index, in fragments", "arbitrary indexes and arguments as objects",
        "a new id for every fragment", "a new id and the name in every fragment",
        "a new id for every fragment and no index", "a name after the first arguments",
    ],
)  # fmt: skip
def test_fragments_of_two_calls_are_joined_to_two_calls(chunks: list[list[JsonObject]]) -> None:
    assert read_calls(*chunks) == TWO


@pytest.mark.parametrize("index", [0, None])
def test_if_no_ids_are_sent_a_different_name_starts_a_new_call(index: int | None) -> None:
    assert read_calls(
        [fragment(index, None, "f", "{}")],
        [fragment(index, None, "f", "")],
        [fragment(index, None, "g", "{}")],
    ) == [WrittenCall("f", "{}"), WrittenCall("g", "{}")]


AGAIN = [WrittenCall("f", '{"a":1}'), WrittenCall("f", '{"a":2}')]


@pytest.mark.parametrize("nothing", [None, "", " "])
@pytest.mark.parametrize("index", [0, None])
def test_if_no_ids_are_sent_a_repeated_name_starts_a_call_after_complete_arguments(
    index: int | None, nothing: str | None
) -> None:
    """Some engines send the index 0 for every call (vercel/ai#18440)."""
    complete, two = '{"a":1}', '{"a":2}'
    first = [fragment(index, nothing, "f", complete)], [fragment(index, nothing, "f", two)]
    assert read_calls(*first) == AGAIN
    named = (
        [fragment(index, nothing, "f", ""), fragment(0, nothing, None, complete)],
        [fragment(index, nothing, "f", "")],
        [fragment(index, nothing, None, two[:4])],
        [fragment(index, nothing, None, two[4:])],
    )
    assert read_calls(*named) == AGAIN


def test_a_repeated_name_continues_a_call_whose_arguments_are_incomplete() -> None:
    pieces = ("", '{"a":{', "}", '"}"', "}", "")
    chunks = ([fragment(0, None, "f", piece)] for piece in pieces)
    assert read_calls(*chunks) == [WrittenCall("f", "".join(pieces))]


@pytest.mark.parametrize("blank", ["", " ", "\n"])
def test_a_blank_id_counts_as_missing(blank: str) -> None:
    assert read_calls([fragment(0, "c1", "f", '{"a"')], [fragment(0, blank, None, ":1}")]) == [
        WrittenCall("f", '{"a":1}', "c1")
    ]
    assert read_calls([fragment(0, blank, "f", "{}")]) == [WrittenCall("f", "{}")]


def test_add_texts_returns_none_for_arguments_after_a_repeated_name() -> None:
    calls = CallsInProgress()
    calls.add(0, as_fragment(fragment(0, None, "f", "{}")))
    assert calls.add_texts(0, [" "]) == [ToolCallArgumentsDelta(0, " ")]
    calls.add(0, as_fragment(fragment(0, None, "f", "")))
    assert calls.add_texts(0, ["{"]) is None


def test_an_id_in_a_later_fragment_does_not_begin_another_call() -> None:
    assert read_calls([fragment(0, None, "f", "{")], [fragment(0, "c1", None, "}")]) == [
        WrittenCall("f", "{}")
    ]


def test_an_index_takes_precedence_over_an_id() -> None:
    assert read_calls([fragment(0, "c", "f", "{}")], [fragment(1, "c", "g", "{}")]) == [
        WrittenCall("f", "{}", "c"),
        WrittenCall("g", "{}", "c"),
    ]


def test_a_call_without_a_name_is_reported_at_the_end_of_the_reply() -> None:
    assert read_calls([fragment(0, "c1", None, "{}")], [{"index": 1}]) == [
        WrittenCall("", "{}", "c1"),
        WrittenCall("", ""),
    ]


def test_a_call_whose_function_is_no_object_is_invalid() -> None:
    with pytest.raises(ValueError, match="must be an object"):
        read_calls([{"index": 0, "function": "f"}])


def test_add_texts_returns_none_for_a_call_without_a_name() -> None:
    calls = CallsInProgress()
    calls.add(0, as_fragment({"index": 3, "id": "a", "function": {"arguments": "{"}}))
    assert calls.add_texts(3, ["}"]) is None
    calls.add(0, as_fragment({"index": 3, "function": {"name": "look"}}))
    assert calls.add_texts(3, ["", "}"]) == [ToolCallArgumentsDelta(0, "}")]
    assert calls.add_texts(4, ["}"]) is None


def chunk(
    delta: JsonValue = None, reason: JsonValue = None, **members: JsonValue
) -> dict[str, JsonValue]:
    choice: JsonObject = {"index": 0, "delta": delta, "finish_reason": reason}
    return {
        "id": "c1",
        "created": 1700000000,
        "model": "m",
        "system_fingerprint": "fp",
        "choices": [choice],
        **members,
    }


def read(*chunks: JsonValue, done: bool = True) -> list[ReplyPart]:
    decoder = ChunkDecoder()
    parts = [part for each in chunks for part in decoder.feed(json.dump_text(each))]
    return parts + (decoder.feed("[DONE]") if done else []) + decoder.finish()


END = chunk({}, "stop")


@pytest.mark.parametrize("text", ['{"x":%s}', '{"choices":[],"x":%s}', '{"choices":%s}'])
def test_deeply_nested_json_is_invalid(text: str) -> None:
    deep = text % ("[" * 100_000 + "]" * 100_000)
    for document in (deep, deep.replace('"x"', '"\\ud83d"')):
        with pytest.raises(ValueError, match=r".+"):
            ChunkDecoder().feed(document)


def test_a_reply_ends_after_the_first_call_above_the_limit() -> None:
    calls = [fragment(at, f"c{at}", "f", "{}") for at in range(bounds.CALLS + 9)]
    parts = read(*[chunk({"tool_calls": [call]}) for call in calls], END)
    # one call above the limit is returned, so that the guardrails report it
    assert sum(isinstance(part, ToolCallStarted) for part in parts) == bounds.CALLS + 1
    assert parts[-1] == ReplyFinished("tool_calls")


@pytest.mark.parametrize("chunk", ["{garbage", "[DONE]", json.dump_text(END)])
def test_data_after_the_end_of_a_reply_is_ignored(chunk: str) -> None:
    decoder = ChunkDecoder()
    decoder.feed(json.dump_text(END))

    assert decoder.feed(" [DONE]\n") == [ReplyFinished("stop")]
    assert decoder.feed(chunk) == []
    assert decoder.finish() == []
