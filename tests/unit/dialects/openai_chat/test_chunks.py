import pytest

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.dialects.openai_chat.chunks import as_chunk, as_fragment, read_chunk

CALL: JsonObject = {"index": 0, "id": "c", "function": {"name": "f", "arguments": "{}"}}
USUAL: JsonObject = {
    "id": "r",
    "created": 5,
    "model": "m",
    "system_fingerprint": "s",
    "choices": [
        {
            "delta": {"content": "a", "reasoning_content": "b", "tool_calls": [CALL]},
            "finish_reason": "stop",
            "logprobs": {"content": []},
        }
    ],
    "usage": {"total_tokens": 1},
    "timings": {"n": 1},
    "prompt_progress": {"total": 3, "cache": 2, "processed": 1},
}


def test_as_chunk_and_read_chunk_decode_a_typical_chunk_to_the_same_result() -> None:
    assert as_chunk(USUAL) == read_chunk(json.dump(USUAL))


def test_as_fragment_accepts_members_of_the_wrong_type() -> None:
    odd: JsonObject = {"index": "0", "id": None, "function": {"name": 1, "arguments": {"a": 1}}}
    fragment = as_fragment(odd)
    assert (fragment.index, fragment.id) == (None, "")
    assert fragment.function is not None
    assert (fragment.function.name, fragment.function.arguments) == ("", '{"a":1}')


@pytest.mark.parametrize(
    "chunk",
    [
        {"id": "r"},
        {"choices": 1},
        {"choices": [1]},
        {"choices": [{"delta": 1}]},
        {"choices": [{"delta": {"content": 1}}]},
        {"choices": [{"delta": {"tool_calls": 1}}]},
        {"choices": [{"delta": {"tool_calls": [1]}}]},
        {"choices": [{"delta": {"tool_calls": [{"function": 1}]}}]},
    ],
)
def test_an_invalid_chunk_is_refused(chunk: dict[str, JsonValue]) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - each case has a different message
        as_chunk(chunk)
