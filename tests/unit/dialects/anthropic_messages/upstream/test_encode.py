from itertools import pairwise
from typing import cast

from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.conversation.requests import UpstreamRequest
from proxy.dialects.anthropic_messages.upstream.encode import (
    encode_count,
    encode_history,
    encode_request,
)
from proxy.dialects.anthropic_messages.upstream.fields import ModelLimits
from proxy.dialects.openai_chat.decode import decode_request
from tests.examples import examples
from tests.fakes.anthropic_types import check_count, check_request
from tests.fakes.histories import history
from tests.fakes.scripts import TOOLS
from tests.unit.dialects.anthropic_messages.upstream.histories import turns

LIMITS = ModelLimits("claude")
FORM: JsonObject = {"type": "json_schema", "json_schema": {"schema": {"type": "object"}}}
FIELDS: list[JsonObject] = [
    {},
    {"max_tokens": 9, "stop": "x", "temperature": 0.5, "top_k": 3},
    {"reasoning_effort": "low", "user": "Ann", "stream": True},
    {"response_format": FORM, "chat_template_kwargs": {"enable_thinking": False}},
    {"tools": [*TOOLS]},
    {"tools": [*TOOLS], "tool_choice": "required", "parallel_tool_calls": False},
    {"tools": [*TOOLS], "tool_choice": "none", "thinking": {"type": "adaptive"}},
]


def upstream_request(messages: list[JsonObject], fields: JsonObject) -> UpstreamRequest:
    request = decode_request(json.dump({"model": "m", "messages": [*messages], **fields}))
    return UpstreamRequest(request, request.messages, request.tools, request.tool_choice)


@settings(max_examples=40)
@given(turns(), st.sampled_from(FIELDS))
def test_every_encoded_request_validates_against_the_sdk_types(
    conversation: list[list[JsonObject]], fields: JsonObject
) -> None:
    request = upstream_request([message for turn in conversation for message in turn], fields)
    body = encode_request(request, LIMITS)
    assert body == encode_request(request, LIMITS)
    check_request(cast("JsonObject", json.parse(body)))
    check_count(cast("JsonObject", json.parse(encode_count(request, LIMITS))))


@settings(max_examples=50)
@given(turns())
def test_adding_turns_to_a_conversation_does_not_change_the_bytes_of_earlier_messages(
    conversation: list[list[JsonObject]],
) -> None:
    histories = [
        encode_history(history(*(message for turn in conversation[:count] for message in turn)))
        for count in range(1, len(conversation) + 1)
    ]
    for shorter, longer in pairwise(histories):
        assert longer.messages[: len(shorter.messages)] == shorter.messages
        assert longer.system == shorter.system


@settings(max_examples=examples(50))
@given(turns())
def test_every_call_has_its_result_in_the_next_message(
    conversation: list[list[JsonObject]],
) -> None:
    whole = history(*(message for turn in conversation for message in turn))
    messages = [cast("JsonObject", json.parse(entry)) for entry in encode_history(whole).messages]
    assert messages[0]["role"] == "user"
    for message, following in pairwise(messages):
        blocks = cast("list[JsonObject]", message["content"])
        call_ids = [block["id"] for block in blocks if block["type"] == "tool_use"]
        if call_ids:
            results = cast("list[JsonObject]", following["content"])[: len(call_ids)]
            assert sorted(f"{result['tool_use_id']}" for result in results) == sorted(
                map(str, call_ids)
            )
