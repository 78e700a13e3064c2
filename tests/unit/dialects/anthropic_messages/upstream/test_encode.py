from itertools import pairwise
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.messages import Message
from proxy.conversation.requests import UpstreamRequest
from proxy.conversation.tools import ToolUse
from proxy.dialects.anthropic_messages.upstream.encode import (
    encode_count,
    encode_history,
    encode_question,
    encode_tool,
)
from proxy.dialects.anthropic_messages.upstream.fields import ModelLimits
from proxy.dialects.foreign_history import sign
from proxy.dialects.openai_chat.decode import decode_request
from proxy.errors import InvalidRequest
from tests.examples import examples
from tests.fakes.anthropic_types import check_count, check_question
from tests.fakes.histories import call, called, history, result, said
from tests.fakes.scripts import TOOLS
from tests.unit.dialects.anthropic_messages.upstream.histories import PICTURE, turns

TERMS = ModelLimits("claude")
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


def test_a_body_is_all_that_the_api_wants_to_know() -> None:
    messages: list[JsonObject] = [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "Hi"},
    ]
    body = encode_question(upstream_request(messages, {"tools": [TOOLS[1]], "top_p": 0.5}), TERMS)
    assert body == (
        b'{"model":"claude","max_tokens":4096,"stream":true,'
        b'"top_p":0.5,"cache_control":{"type":"ephemeral"},'
        b'"tools":[{"name":"get_time","description":"Tell the time.",'
        b'"input_schema":{"type":"object","properties":{}}}],'
        b'"system":[{"type":"text","text":"Be kind."}],'
        b'"messages":[{"role":"user","content":[{"type":"text","text":"Hi"}]}]}'
    )


def test_what_is_counted_is_the_prompt() -> None:
    asked = upstream_request(
        [{"role": "user", "content": "Hi"}], {**FIELDS[1], **FIELDS[5], **FIELDS[2]}
    )
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
    asked = upstream_request([one for turn in cut for one in turn], fields)
    body = encode_question(asked, TERMS)
    assert body == encode_question(asked, TERMS)
    check_question(cast("JsonObject", json.parse(body)))
    check_count(cast("JsonObject", json.parse(encode_count(asked, TERMS))))


def test_a_choice_leaves_the_prompt_alone() -> None:
    asked = upstream_request([{"role": "user", "content": "Hi"}], {"tools": [*TOOLS]})

    def prompt(of: UpstreamRequest) -> list[JsonValue]:
        body = cast("JsonObject", json.parse(encode_question(of, TERMS)))
        return [body["tools"], body["messages"]]

    assert prompt(replace(asked, tool_choice=ToolUse.NONE)) == prompt(asked)
    assert prompt(replace(asked, schema={"type": "object"})) == prompt(asked)


WORDLESS = "(empty message)"


def text(words: str) -> JsonObject:
    return {"type": "text", "text": words}


def told(*messages: JsonObject) -> list[JsonValue]:
    return [json.parse(message) for message in encode_history(history(*messages)).messages]


def system(*messages: JsonObject) -> list[JsonValue]:
    return [json.parse(block) for block in encode_history(history(*messages)).system]


def refused(*messages: JsonObject) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as raised:
        told(*messages)
    return raised.value


def user(*blocks: JsonValue) -> JsonObject:
    return {"role": "user", "content": [*blocks]}


def answer(*blocks: JsonValue) -> JsonObject:
    return {"role": "assistant", "content": [*blocks]}


def used(call_id: str, **arguments: JsonValue) -> JsonObject:
    return {"type": "tool_use", "id": call_id, "name": "look", "input": arguments}


def came(call_id: str, *blocks: JsonValue) -> JsonObject:
    content: JsonObject = {"content": [*blocks]} if blocks else {}
    return {"type": "tool_result", "tool_use_id": call_id, **content}


def test_texts_are_blocks() -> None:
    assert told(said("user", "Hi"), said("assistant", "Hello"), said("user", [text("a")])) == [
        user(text("Hi")),
        answer(text("Hello")),
        user(text("a")),
    ]


def test_texts_are_copied_as_they_were_written() -> None:
    source = b'{"role":"user","content":"D\\u00e9j\\u00e0 \\/ vu"}'
    (written,) = encode_history([Message("user", "", source)]).messages
    assert b'"D\\u00e9j\\u00e0 \\/ vu"' in written


def test_what_the_system_says_first_has_a_place_of_its_own() -> None:
    first = (said("system", "Be kind."), said("developer", [text("Be"), text(" "), text("brief.")]))
    assert system(*first, said("user", "Hi")) == [text("Be kind."), text("Be"), text("brief.")]
    assert told(*first, said("user", "Hi")) == [user(text("Hi"))]


def reminder(*words: str) -> JsonObject:
    return text("\n".join(("<system-reminder>", *words, "</system-reminder>")))


def test_what_it_says_later_goes_into_the_message_before() -> None:
    assert told(said("user", "Hi"), said("system", "Hurry."), said("system", " ")) == [
        user(text("Hi"), reminder("Hurry."))
    ]
    rounds = (said("user", "Hi"), called(call("a")), result("a", "Ok"))
    assert told(*rounds, said("developer", [text("Hurry."), text("Now.")])) == [
        user(text("Hi")),
        answer(used("a")),
        user(came("a", text("Ok"), reminder("Hurry.", "Now."))),
    ]


def test_behind_an_answer_it_is_a_message_of_the_user() -> None:
    assert told(said("user", "Hi"), said("assistant", "Yes"), said("system", "Hurry.")) == [
        user(text("Hi")),
        answer(text("Yes")),
        user(reminder("Hurry.")),
    ]
    unanswered = told(said("user", "Hi"), called(call("a")), said("system", "Hurry."))
    assert unanswered == [user(text("Hi")), answer(used("a")), user(reminder("Hurry."))]
    assert told(said("assistant", ""), said("system", "Hurry.")) == [user(reminder("Hurry."))]


def test_the_results_of_an_answer_are_one_message_right_behind_it() -> None:
    made = called(call("a", arguments='{"x": 1}'), call("b"), content="Let me look.")
    assert told(
        said("user", "Hi"), made, result("b", "2"), result("a", ""), said("user", "And?")
    ) == [
        user(text("Hi")),
        answer(text("Let me look."), used("a", x=1), used("b")),
        user(came("b", text("2")), came("a")),
        user(text("And?")),
    ]


def test_a_result_that_comes_late_comes_where_it_belongs() -> None:
    assert told(said("user", "Hi"), called(call("a")), said("user", "Wait."), result("a", "1")) == [
        user(text("Hi")),
        answer(used("a")),
        user(came("a", text("1"))),
        user(text("Wait.")),
    ]


def test_results_of_the_old_kind_are_results() -> None:
    old = {"role": "function", "name": "look", "tool_call_id": "a", "content": "1"}
    assert told(said("user", "Hi"), called(call("a")), {**old})[-1] == user(came("a", text("1")))


def test_a_result_of_a_call_that_nobody_made_is_left_to_the_api() -> None:
    assert told(said("user", "Hi"), result("x.1", "1"))[-1] == user(came("x_1", text("1")))


def test_a_result_has_to_tell_its_call() -> None:
    error = refused(said("user", "Hi"), called(call("a")), {"role": "tool", "content": "1"})
    assert error.param == "messages.2.tool_call_id"


def test_ids_have_letters_that_the_api_takes_and_come_once() -> None:
    ids = ("functions.look:0", "functions.look:0", "functions_look_0_2", "")
    rounds = [one for name in ids for one in (called(call(name)), result(name, "1"))]
    messages = cast("list[JsonObject]", told(said("user", "Hi"), *rounds))
    blocks = [cast("list[JsonObject]", message["content"])[0] for message in messages[1:]]
    made = [block["id"] for block in blocks if "id" in block]
    assert made == ["functions_look_0", "functions_look_0_2", "functions_look_0_2_2", "call"]
    assert [block["tool_use_id"] for block in blocks if "id" not in block] == made


@pytest.mark.parametrize(
    ("arguments", "written"),
    [
        ('{ "a":1.0 }', b'{ "a":1.0 }'),
        ("", b"{}"),
        (" ", b"{}"),
        ("[1]", b'{"unparsable":"[1]"}'),
        ('{"a"', b'{"unparsable":"{\\"a\\""}'),
    ],
)
def test_arguments_are_copied_if_they_are_an_object(arguments: str, written: bytes) -> None:
    made = history(said("user", "Hi"), called(call("a", arguments=arguments)))
    assert b'"input":' + written + b"}" in encode_history(made).messages[1]


def test_pictures_of_users_and_of_results_are_carried() -> None:
    picture: JsonObject = {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": "aGk="},
    }
    assert told(
        said("user", [text("Look:"), PICTURE, text("")]), called(call("a")), result("a", [PICTURE])
    ) == [user(text("Look:"), picture), answer(used("a")), user(came("a", picture))]


def test_a_picture_of_another_kind_is_refused_by_name() -> None:
    part: JsonObject = {"type": "image_url", "image_url": "data:image/tiff;base64,aGk="}
    error = refused(said("user", [text("Look:"), part]))
    assert error.param == "messages.0.content.1.image_url.url"
    assert "image/webp" in error.problem


@pytest.mark.parametrize("role", ["user", "assistant", "system"])
def test_other_content_is_refused_by_name(role: str) -> None:
    sound: JsonObject = {"type": "input_audio", "input_audio": {"data": "aGk=", "format": "wav"}}
    assert refused(said("user", "Hi"), said(role, [sound])).param == "messages.1.content.0"


def test_only_users_and_tools_show_pictures() -> None:
    assert refused(said("assistant", [PICTURE])).param == "messages.0.content.0"


def test_a_refusal_is_a_text() -> None:
    parts: list[JsonValue] = [{"type": "refusal", "refusal": "No."}, {"type": "refusal"}]
    assert told(said("user", "Hi"), said("assistant", parts))[-1] == answer(text("No."))


@pytest.mark.parametrize("content", [None, "", " \n", [], [text("")]])
def test_who_says_nothing_says_so_and_an_empty_answer_is_left_out(content: JsonValue) -> None:
    assert told(said("user", content), said("assistant", content), said("user", "Hi")) == [
        user(text(WORDLESS)),
        user(text("Hi")),
    ]


def test_the_user_has_the_first_word() -> None:
    assert told(said("assistant", "Hello")) == [user(text(WORDLESS)), answer(text("Hello"))]
    assert told(said("system", "Be kind.")) == [user(text(WORDLESS))]


def test_thoughts_that_nobody_has_signed_are_left_out() -> None:
    parts: list[JsonValue] = [{"type": "thinking", "thinking": "Hm."}, text("Yes")]
    thought = said("assistant", parts, reasoning_content="Hm.", thinking="Hm.")
    assert told(said("user", "Hi"), thought)[-1] == answer(text("Yes"))


def test_thoughts_that_anthropic_has_signed_go_back() -> None:
    signed: JsonObject = {"type": "thinking", "thinking": "Hm.", "signature": "EqQB"}
    hidden: JsonObject = {"type": "redacted_thinking", "data": "Em0K"}
    blocks: list[JsonValue] = [{**signed, "cache_control": None}, hidden]
    thought = said("assistant", "Yes", thinking_blocks=blocks)
    assert told(said("user", "Hi"), thought)[-1] == answer(signed, hidden, text("Yes"))


@pytest.mark.parametrize(
    "block",
    [
        "Hm.",
        {"type": "thinking", "thinking": "Hm."},
        {"type": "thinking", "signature": "EqQB"},
        {"type": "thinking", "thinking": "Hm.", "signature": ""},
        {"type": "thinking", "thinking": "Hm.", "signature": 1},
        {"type": "thinking", "thinking": "Hm.", "signature": sign("Hm.")},
        {"type": "redacted_thinking"},
        {"type": "other", "signature": "EqQB"},
    ],
)
def test_what_anthropic_has_not_signed_does_not(block: JsonValue) -> None:
    thought = said("assistant", "Yes", thinking_blocks=[block])
    assert told(said("user", "Hi"), thought)[-1] == answer(text("Yes"))
    assert told(said("user", "Hi"), said("assistant", "Yes", thinking_blocks="x"))[-1] == answer(
        text("Yes")
    )


@settings(max_examples=examples(50))
@given(turns())
def test_a_longer_conversation_begins_with_the_bytes_of_a_shorter_one(
    cut: list[list[JsonObject]],
) -> None:
    made = [
        encode_history(history(*(one for turn in cut[:count] for one in turn)))
        for count in range(1, len(cut) + 1)
    ]
    for shorter, longer in pairwise(made):
        assert longer.messages[: len(shorter.messages)] == shorter.messages
        assert longer.system == shorter.system


@settings(max_examples=examples(50))
@given(turns())
def test_every_call_has_its_result_in_the_message_behind_it(cut: list[list[JsonObject]]) -> None:
    whole = history(*(one for turn in cut for one in turn))
    messages = [cast("JsonObject", json.parse(one)) for one in encode_history(whole).messages]
    assert messages[0]["role"] == "user"
    for message, behind in pairwise(messages):
        blocks = cast("list[JsonObject]", message["content"])
        made = [block["id"] for block in blocks if block["type"] == "tool_use"]
        if made:
            answers = cast("list[JsonObject]", behind["content"])[: len(made)]
            assert sorted(f"{one['tool_use_id']}" for one in answers) == sorted(map(str, made))


def encoded(function: bytes) -> bytes:
    tool = b'{"type":"function","function":' + function + b"}"
    body = b'{"messages":[{"role":"user","content":"Hi"}],"tools":[' + tool + b"]}"
    (read,) = decode_request(body).tools
    return encode_tool(read)


def test_a_schema_is_copied_as_it_was_written() -> None:
    written = b'{ "type": "object", "properties": {"x": {"maximum": 1.0}} }'
    function = b'{"name":"f","description":"D\\u00e9","strict":true,"parameters":%b}' % written
    assert encoded(function) == (
        b'{"name":"f","description":"D\\u00e9","input_schema":%b}' % written
    )


@pytest.mark.parametrize("description", [b"null", b'""'])
def test_an_empty_description_is_none(description: bytes) -> None:
    assert encoded(b'{"name":"f","description":%b}' % description) == (
        b'{"name":"f","input_schema":{"type":"object","properties":{}}}'
    )


@pytest.mark.parametrize(
    ("parameters", "schema"),
    [
        (None, {"type": "object", "properties": {}}),
        (True, {"type": "object"}),
        ({}, {"type": "object"}),
        ({"type": ["object", "null"], "required": []}, {"type": "object", "required": []}),
        ({"properties": {"a": {}}}, {"properties": {"a": {}}, "type": "object"}),
    ],
)
def test_a_schema_is_one_of_an_object_and_says_so(parameters: JsonValue, schema: JsonValue) -> None:
    tool = json.parse(encoded(json.dump({"name": "f", "parameters": parameters})))
    assert tool == {"name": "f", "input_schema": schema}
