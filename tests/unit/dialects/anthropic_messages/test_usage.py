import pytest

from proxy.conversation.json import JsonObject
from proxy.conversation.replies import PromptProgress, UsageReported
from proxy.dialects.anthropic_messages.usage import usage_at_end, usage_at_start, usage_of_delta

NOTHING: JsonObject = {
    "input_tokens": 0,
    "cache_creation_input_tokens": 0,
    "cache_read_input_tokens": 0,
    "cache_creation": {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 0},
    "output_tokens": 0,
    "service_tier": "standard",
}


def test_what_is_cached_is_told_apart_from_what_is_read() -> None:
    progress = usage_at_start(PromptProgress(total=10, cached=4, processed=1))
    assert progress == {**NOTHING, "input_tokens": 6, "cache_read_input_tokens": 4}
    usage: JsonObject = {
        "prompt_tokens": 10,
        "completion_tokens": 3,
        "prompt_tokens_details": {"cached_tokens": 4},
        "completion_tokens_details": {"reasoning_tokens": 2},
    }
    assert usage_at_end(UsageReported(usage)) == {
        **progress,
        "output_tokens": 3,
        "output_tokens_details": {"thinking_tokens": 2},
    }


@pytest.mark.parametrize(
    "usage",
    [
        {},
        {"prompt_tokens": None, "completion_tokens": "3"},
        {"prompt_tokens": True, "prompt_tokens_details": None},
        {"prompt_tokens_details": {"cached_tokens": None}, "completion_tokens_details": {}},
    ],
)
def test_numbers_are_never_null(usage: JsonObject) -> None:
    assert usage_at_start(None) == usage_at_end(None) == NOTHING
    assert usage_at_end(UsageReported(usage)) == NOTHING


def test_a_cache_is_never_larger_than_the_prompt() -> None:
    usage: JsonObject = {"prompt_tokens": 3, "prompt_tokens_details": {"cached_tokens": 9}}
    assert usage_at_end(UsageReported(usage))["input_tokens"] == 0


def test_behind_a_stream_only_the_totals_stand() -> None:
    assert usage_of_delta(NOTHING) == {
        "input_tokens": 0,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
        "output_tokens": 0,
    }
