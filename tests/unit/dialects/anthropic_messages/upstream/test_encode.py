from typing import cast

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.requests import Question
from proxy.conversation.tools import ToolUse
from proxy.dialects.anthropic_messages.upstream.encode import encode_count, encode_question
from proxy.dialects.anthropic_messages.upstream.fields import Terms
from proxy.dialects.openai_chat.decode import decode_request
from tests.examples import examples
from tests.fakes.anthropic_types import check_count, check_question
from tests.fakes.scripts import TOOLS
from tests.unit.dialects.anthropic_messages.upstream.histories import turns

TERMS = Terms("claude")
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


def question(messages: list[JsonObject], fields: JsonObject) -> Question:
    request = decode_request(json.dump({"model": "m", "messages": [*messages], **fields}))
    return Question(request, request.messages, request.tools, request.tool_choice)


def test_a_body_is_all_that_the_api_wants_to_know() -> None:
    messages: list[JsonObject] = [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "Hi"},
    ]
    body = encode_question(question(messages, {"tools": [TOOLS[1]], "top_p": 0.5}), TERMS)
    assert body == (
        b'{"model":"claude","max_tokens":4096,"stream":true,'
        b'"top_p":0.5,"cache_control":{"type":"ephemeral"},'
        b'"tools":[{"name":"get_time","description":"Tell the time.",'
        b'"input_schema":{"type":"object","properties":{}}}],'
        b'"system":[{"type":"text","text":"Be kind."}],'
        b'"messages":[{"role":"user","content":[{"type":"text","text":"Hi"}]}]}'
    )


def test_what_is_counted_is_the_prompt() -> None:
    asked = question([{"role": "user", "content": "Hi"}], {**FIELDS[1], **FIELDS[5], **FIELDS[2]})
    whole = cast("JsonObject", json.parse(encode_question(asked, TERMS)))
    counted = cast("JsonObject", json.parse(encode_count(asked, TERMS)))
    check_count(counted)
    left_out = {"max_tokens", "stream", "stop_sequences", "temperature", "top_k", "cache_control"}
    assert counted == {name: whole[name] for name in whole if name not in left_out}


@settings(max_examples=examples(40))
@given(turns(), st.sampled_from(FIELDS))
def test_whatever_is_asked_the_sdk_has_types_for_it(
    cut: list[list[JsonObject]], fields: JsonObject
) -> None:
    asked = question([one for turn in cut for one in turn], fields)
    body = encode_question(asked, TERMS)
    assert body == encode_question(asked, TERMS)
    check_question(cast("JsonObject", json.parse(body)))
    check_count(cast("JsonObject", json.parse(encode_count(asked, TERMS))))


def test_a_choice_leaves_the_prompt_alone() -> None:
    asked = question([{"role": "user", "content": "Hi"}], {"tools": [*TOOLS]})

    def prompt(of: Question) -> list[JsonValue]:
        body = cast("JsonObject", json.parse(encode_question(of, TERMS)))
        return [body["tools"], body["messages"]]

    assert prompt(replace(asked, tool_choice=ToolUse.NONE)) == prompt(asked)
    assert prompt(replace(asked, schema={"type": "object"})) == prompt(asked)
