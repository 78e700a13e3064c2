import pytest
from msgspec.structs import replace

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.replies import ReasoningDelta, TextDelta, ToolCallArgumentsDelta
from proxy.dialects.lenient_json import as_list
from proxy.dialects.openai_chat.fragments import (
    ArgumentsFragment,
    ChunkRun,
    Fragment,
    Runs,
    fragment_in,
)
from proxy.dialects.openai_chat.replies import ChunkDecoder
from tests.fakes.upstream_requests import chunk as chunk_of
from tests.fakes.upstream_requests import stream

MORE: JsonObject = {"index": 1, "function": {"arguments": "{"}}


def chunk(delta: JsonValue, **choice: JsonValue) -> JsonObject:
    body: JsonObject = {"index": 0, "delta": delta, "finish_reason": None, **choice}
    return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "choices": [body]}


CHOICES = as_list(chunk({"content": "a"})["choices"])


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        # a typical chunk is parsed
        (chunk({"content": "Hi"}), TextDelta("Hi")),
        (chunk({"role": "assistant", "content": "Hi", "tool_calls": None}), TextDelta("Hi")),
        ({**chunk({"content": "Hi"}), "usage": None}, TextDelta("Hi")),
        (chunk({"content": "", "reasoning_content": "Hm"}), ReasoningDelta("Hm")),
        (chunk({"tool_calls": [MORE]}), ArgumentsFragment(1, "{")),
        (chunk({"content": None, "tool_calls": [MORE]}), ArgumentsFragment(1, "{")),
        # an untypical chunk is left to the decoder
        (chunk({}), None),
        (chunk({"role": "assistant", "content": ""}), None),
        (chunk({"content": "Hi"}, finish_reason="stop"), None),
        (chunk({"content": "Hi"}, logprobs={"content": []}), None),
        (chunk({"content": "Hi"}, index=1), None),
        (chunk({"content": ["Hi"]}), None),
        (chunk({"content": "Hi", "reasoning_content": "Hm"}), None),
        (chunk({"content": "Hi", "tool_calls": [MORE]}), None),
        (chunk({"reasoning": "Hm"}), None),
        (chunk({"tool_calls": []}), None),
        (chunk({"tool_calls": [MORE, MORE]}), None),
        (chunk({"tool_calls": [{**MORE, "id": "call_1"}]}), None),
        (
            chunk({"tool_calls": [{"index": 0, "function": {"name": "look", "arguments": "{"}}]}),
            None,
        ),
        (chunk({"tool_calls": [{"index": 0, "function": {"arguments": {}}}]}), None),
        ({**chunk({"content": "Hi"}), "usage": {"prompt_tokens": 1}}, None),
        ({**chunk({"content": "Hi"}), "timings": {}}, None),
        ({**chunk({"content": "Hi"}), "prompt_progress": {}}, None),
        ({**chunk({"content": "Hi"}), "error": {"message": "Oh."}}, None),
        ({"choices": []}, None),
        (
            {"choices": [*CHOICES, *CHOICES]},
            None,
        ),
        ({"choices": [{"message": {"content": "Hi"}}]}, None),
        ({"error": {"message": "Oh."}}, None),
    ],
)
def test_only_a_typical_chunk_has_a_fragment(
    sent: JsonObject, expected: TextDelta | ReasoningDelta | ArgumentsFragment | None
) -> None:
    assert fragment_in(json.dump_text(sent)) == expected


@pytest.mark.parametrize("data", ["", "[DONE]", "{garbage", "[]", '"\\ud800"'])
def test_an_invalid_chunk_has_no_fragment(data: str) -> None:
    assert fragment_in(data) is None


def event(text: str) -> bytes:
    return stream(chunk_of({"content": text}), done=False)


def learned_runs(sample: bytes) -> Runs:
    runs = Runs()
    runs.learn(sample.removesuffix(b"\n\n"))
    return runs


def test_a_run_of_similar_events_ends_before_a_different_or_incomplete_event() -> None:
    runs, row = learned_runs(event("a")), event("x") + event("") + event('"\n')
    run = ChunkRun(TextDelta("~"), ["x", "", '"\n'], len(row))
    for following in (b"", b": a comment\n\n", event("y")[:-1], event("y")[:-9], event("")[:70]):
        assert runs.find(row + following, 0) == run
    assert runs.find(b"..." + row, 3) == replace(run, end=len(row) + 3)


def test_incomplete_events_and_events_of_a_different_form_do_not_form_a_run() -> None:
    runs = learned_runs(event("a"))
    for data in (b"", b": a comment\n\n", event("y")[:-1], event("\\")[:-1], b"data: [DONE]\n\n"):
        assert runs.find(data, 0) is None
    assert Runs().find(event("x"), 0) is None


@pytest.mark.parametrize("between", [b"\n", b": a comment\n\n", event("y")[:40] + b"\n\n"])
def test_a_run_of_similar_events_ends_before_other_data(between: bytes) -> None:
    runs, row = learned_runs(event("a")), event("x") * 3
    run = ChunkRun(TextDelta("~"), ["x"] * 3, len(row))
    assert runs.find(row + between, 0) == run
    assert runs.find(row + between + event("x"), 0) == run
    assert runs.find(row + between + row, 0) is None
    first = ChunkRun(TextDelta("~"), ["x"], len(event("x")))
    assert runs.find(event("x") + between + row, 0) == first


@pytest.mark.parametrize("text", [b"\\", b'","', b'a" , "b', b"\xff", b"\\ud800", b"\x01", b"\n"])
def test_an_event_whose_text_is_not_one_valid_json_string_does_not_form_a_run(
    text: bytes,
) -> None:
    runs, wrong = learned_runs(event("a")), event("~").replace(b"~", text)
    for data in (wrong, wrong * 2, event("x") + wrong, wrong + event("x")):
        assert runs.find(data, 0) is None


def test_after_a_changed_timestamp_a_new_pattern_is_learned() -> None:
    runs = Runs()
    for second in range(30):
        now = event("x").replace(b"1700000000", b"%d" % (1700000000 + second))
        runs.learn(now.removesuffix(b"\n\n"))
        assert runs.find(now, 0) is not None
    assert runs.attempts_left


@pytest.mark.parametrize(
    ("delta", "sample"),
    [
        ('{"content": "x"}', TextDelta("~")),
        ('{"reasoning_content":"x"}', ReasoningDelta("~")),
        ('{"tool_calls":[{"index":3,"function":{"arguments":"x"}}]}', ArgumentsFragment(3, "~")),
    ],
)
def test_a_pattern_is_learned_from_every_kind_of_delta(delta: str, sample: Fragment) -> None:
    chunks = f'data: {{"choices":[{{"delta":{delta}}}]}}'.encode()
    run = learned_runs(chunks).find(chunks + b"\n\n", 0)
    assert run == ChunkRun(sample, ["x"], len(chunks) + 2)


@pytest.mark.parametrize(
    "sample",
    [
        b"",
        b"data: {}",
        b'data:{"choices":[{"delta":{"content":"x"}}]}',
        b'data: {"choices":[{"delta":{"content":"x"}}]}\ndata: {}',
        b'data: {"choices":[{"delta":{"content":"x"},"finish_reason":"stop"}]}',
        b'data: {"note":{"content":"x"},"choices":[{"delta":{"content":"y"}}]}',
    ],
)
def test_no_pattern_is_learned_from_an_untypical_event(sample: bytes) -> None:
    assert learned_runs(sample).find(sample + b"\n\n", 0) is None


def test_no_pattern_is_learned_after_many_failed_attempts() -> None:
    runs = Runs()
    for number in range(20):
        runs.learn(f'data: {{"id":{number},"choices":[{{"delta":{{"content":"x"}}}}]}}'.encode())
    assert not runs.attempts_left
    assert runs.find(b'data: {"id":19,"choices":[{"delta":{"content":"x"}}]}\n\n', 0) is None


def test_texts_added_after_the_end_of_a_reply_are_ignored() -> None:
    decoder = ChunkDecoder()
    decoder.feed(json.dump_text(chunk_of({}, "stop")))
    decoder.feed("[DONE]")
    assert decoder.add_texts(TextDelta("~"), ["late"]) == []


def test_add_texts_returns_an_event_like_the_sample_for_each_text() -> None:
    decoder = ChunkDecoder()
    call: JsonObject = {"index": 1, "id": "a", "function": {"name": "look", "arguments": "{"}}
    decoder.feed(json.dump_text(chunk_of({"tool_calls": [call]})))
    more = ToolCallArgumentsDelta(0, "}")
    assert decoder.add_texts(ArgumentsFragment(1, "~"), ["", "}"]) == [more]
    assert decoder.add_texts(ArgumentsFragment(2, "~"), ["}"]) is None
    assert decoder.add_texts(TextDelta("~"), ["It", "", " is"]) == [
        TextDelta("It"),
        TextDelta(" is"),
    ]
    assert decoder.add_texts(ReasoningDelta("~"), ["", "Hm"]) == [ReasoningDelta("Hm")]
