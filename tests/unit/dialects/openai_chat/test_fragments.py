import pytest

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.replies import ReasoningDelta, TextDelta
from proxy.dialects.openai_chat.fragments import ArgumentsFragment, fragment_in

MORE: JsonObject = {"index": 1, "function": {"arguments": "{"}}


def chunk(delta: JsonValue, **choice: JsonValue) -> JsonObject:
    written: JsonObject = {"index": 0, "delta": delta, "finish_reason": None, **choice}
    return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "choices": [written]}


@pytest.mark.parametrize(
    ("sent", "found"),
    [
        (chunk({"content": "Hi"}), TextDelta("Hi")),
        (chunk({"role": "assistant", "content": "Hi", "tool_calls": None}), TextDelta("Hi")),
        ({**chunk({"content": "Hi"}), "usage": None}, TextDelta("Hi")),
        (chunk({"content": "", "reasoning_content": "Hm"}), ReasoningDelta("Hm")),
        (chunk({"tool_calls": [MORE]}), ArgumentsFragment(1, "{")),
        (chunk({"content": None, "tool_calls": [MORE]}), ArgumentsFragment(1, "{")),
    ],
)
def test_what_nearly_every_chunk_is_is_read_at_once(
    sent: JsonObject, found: TextDelta | ReasoningDelta | ArgumentsFragment
) -> None:
    assert fragment_in(json.dump_text(sent)) == found


@pytest.mark.parametrize(
    "sent",
    [
        chunk({}),
        chunk({"role": "assistant", "content": ""}),
        chunk({"content": "Hi"}, finish_reason="stop"),
        chunk({"content": "Hi"}, logprobs={"content": []}),
        chunk({"content": "Hi"}, index=1),
        chunk({"content": ["Hi"]}),
        chunk({"content": "Hi", "reasoning_content": "Hm"}),
        chunk({"content": "Hi", "tool_calls": [MORE]}),
        chunk({"reasoning": "Hm"}),
        chunk({"tool_calls": []}),
        chunk({"tool_calls": [MORE, MORE]}),
        chunk({"tool_calls": [{**MORE, "id": "call_1"}]}),
        chunk({"tool_calls": [{"index": 0, "function": {"name": "look", "arguments": "{"}}]}),
        chunk({"tool_calls": [{"index": 0, "function": {"arguments": {}}}]}),
        {**chunk({"content": "Hi"}), "usage": {"prompt_tokens": 1}},
        {**chunk({"content": "Hi"}), "timings": {}},
        {**chunk({"content": "Hi"}), "prompt_progress": {}},
        {**chunk({"content": "Hi"}), "error": {"message": "Oh."}},
        {"choices": []},
        {"choices": [*chunk({"content": "a"})["choices"], *chunk({"content": "b"})["choices"]]},  # type: ignore[misc] # lists
        {"choices": [{"message": {"content": "Hi"}}]},
        {"error": {"message": "Oh."}},
    ],
)
def test_any_other_chunk_is_left_to_the_decoder(sent: JsonObject) -> None:
    assert fragment_in(json.dump_text(sent)) is None


@pytest.mark.parametrize("data", ["", "[DONE]", "{garbage", "[]", '"\\ud800"'])
def test_what_is_no_chunk_is_left_to_the_decoder(data: str) -> None:
    assert fragment_in(data) is None
