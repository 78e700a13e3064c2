import pytest
from msgspec.structs import replace

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.requests import Question
from proxy.conversation.tools import ToolUse
from proxy.dialects.ollama_chat.encode import encode_messages, encode_question, first_picture
from proxy.dialects.ollama_chat.fields import ModelSettings
from proxy.dialects.openai_chat.decode import decode_request
from proxy.errors import InvalidRequest
from tests.fakes.questions import question

TERMS = ModelSettings("qwen3:8b", 8192)


def body(asked: Question) -> JsonObject:
    value = json.parse(encode_question(asked, TERMS))
    assert isinstance(value, dict)
    return value


def test_a_question_is_streamed_and_never_cut() -> None:
    assert body(question(text="Hi")) == {
        "model": "qwen3:8b",
        "messages": [{"role": "user", "content": "Hi"}],
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "get_weather",
                    "parameters": {"type": "object", "properties": {}},
                },
            }
        ],
        "stream": True,
        "truncate": False,
        "shift": False,
        "options": {"seed": 7, "num_ctx": 8192},
    }


def test_a_model_that_must_not_call_hears_of_no_tool() -> None:
    assert "tools" not in body(question(tool_choice=ToolUse.NONE))
    assert "tools" not in body(question(has_tools=False))


def test_what_is_demanded_of_the_model_is_no_matter_for_ollama() -> None:
    assert body(question(tool_choice=ToolUse.REQUIRED)) == body(question())


def test_a_constrained_attempt_has_the_prompt_of_the_first() -> None:
    schema: JsonObject = {"type": "object"}
    first = body(question())
    assert body(replace(question(), schema=schema)) == {**first, "format": schema}


PIXEL = "aGVsbG8="
PICTURE: JsonObject = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}}


def text(words: str) -> JsonObject:
    return {"type": "text", "text": words}


def encoded(*messages: JsonValue) -> list[JsonValue]:
    asked: JsonObject = {"model": "m", "messages": list(messages)}
    return encode_messages(decode_request(json.dump(asked)).messages)


def refused(*messages: JsonValue) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as raised:
        encoded(*messages)
    return raised.value


def test_plain_messages_keep_role_and_text() -> None:
    history: list[JsonValue] = [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello"},
    ]
    assert encoded(*history) == history


def test_a_developer_is_the_system_and_no_content_is_none() -> None:
    assert encoded({"role": "developer", "content": None}) == [{"role": "system", "content": ""}]


def test_parts_become_text_and_pictures() -> None:
    content: list[JsonValue] = [
        text("Look:"),
        PICTURE,
        {"type": "refusal", "refusal": "No."},
        {"type": "refusal"},
        text("Now."),
    ]
    assert encoded({"role": "user", "content": content}) == [
        {"role": "user", "content": "Look:\nNo.\n\nNow.", "images": [PIXEL]}
    ]


def test_an_address_alone_is_a_picture_as_well() -> None:
    part: JsonObject = {"type": "image_url", "image_url": f"data:image/png;base64,{PIXEL}"}
    assert encoded({"role": "user", "content": [part]}) == [
        {"role": "user", "content": "", "images": [PIXEL]}
    ]


@pytest.mark.parametrize(
    "url", ["data:image/svg+xml,%3Csvg%3E", "data:image/png;base64,###", "data:image/png;base64,"]
)
def test_a_picture_that_is_no_base64_is_refused_by_name(url: str) -> None:
    part: JsonObject = {"type": "image_url", "image_url": {"url": url}}
    error = refused({"role": "user", "content": [text("Look"), part]})
    assert error.param == "messages.0.content.1.image_url.url"


@pytest.mark.parametrize(
    "part",
    [
        {"type": "input_audio", "input_audio": {"data": "", "format": "wav"}},
        {"type": "file", "file": {"file_data": "data:,"}},
        {"type": "video_url", "video_url": {"url": "data:,"}},
    ],
)
def test_other_parts_are_refused_by_name(part: JsonObject) -> None:
    error = refused({"role": "user", "content": "Hi"}, {"role": "user", "content": [part]})
    assert error.param == "messages.1.content.0"
    assert f"{part['type']}" in error.problem


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning", "thinking"])
def test_thoughts_of_the_assistant_go_back_to_it(name: str) -> None:
    message: JsonObject = {"role": "assistant", "content": "4", name: "Two and two."}
    assert encoded(message) == [{"role": "assistant", "content": "4", "thinking": "Two and two."}]
    part: JsonObject = {"type": name, name: "Two and two."}
    assert encoded({"role": "assistant", "content": [part, text("4")]}) == [
        {"role": "assistant", "content": "4", "thinking": "Two and two."}
    ]


def test_nobody_else_has_thoughts() -> None:
    message: JsonObject = {"role": "user", "content": "Hi", "reasoning": "Hm."}
    assert encoded(message) == [{"role": "user", "content": "Hi"}]


def call(call_id: str | None, name: str, arguments: JsonValue) -> JsonObject:
    function: JsonObject = {"name": name, "arguments": arguments}
    identified: JsonObject = {} if call_id is None else {"id": call_id}
    return {**identified, "type": "function", "function": function}


def test_calls_have_objects_and_results_name_their_tool() -> None:
    calls = [call("a", "look", '{"at": "sky"}'), call("b", "wait", ""), call(None, "nap", "{}")]
    assert encoded(
        {"role": "assistant", "content": None, "tool_calls": [*calls]},
        {"role": "tool", "tool_call_id": "a", "content": "blue"},
        {"role": "tool", "tool_call_id": "b", "content": [text("done")]},
    ) == [
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [
                {"id": "a", "function": {"index": 0, "name": "look", "arguments": {"at": "sky"}}},
                {"id": "b", "function": {"index": 1, "name": "wait", "arguments": {}}},
                {"function": {"index": 2, "name": "nap", "arguments": {}}},
            ],
        },
        {"role": "tool", "content": "blue", "tool_name": "look", "tool_call_id": "a"},
        {"role": "tool", "content": "done", "tool_name": "wait", "tool_call_id": "b"},
    ]


def test_the_order_of_arguments_is_kept() -> None:
    calls = [call("a", "look", '{"z": 1, "a": 2}')]
    (message,) = encoded({"role": "assistant", "tool_calls": [*calls]})
    assert b'{"z":1,"a":2}' in json.dump(message)


@pytest.mark.parametrize("arguments", ["{", "[1]", '"text"'])
def test_arguments_that_are_no_object_are_refused_by_name(arguments: str) -> None:
    error = refused({"role": "assistant", "tool_calls": [call("a", "look", arguments)]})
    assert error.param == "messages.0.tool_calls.0.function.arguments"


def test_a_function_of_old_is_a_tool() -> None:
    assert encoded({"role": "function", "name": "look", "content": "blue"}) == [
        {"role": "tool", "content": "blue", "tool_name": "look"}
    ]
    assert encoded({"role": "tool", "content": "blue"}) == [{"role": "tool", "content": "blue"}]


def test_the_first_picture_is_found() -> None:
    asked: JsonObject = {
        "messages": [
            {"role": "user", "content": 'He said "image_url".'},
            {"role": "user", "content": "image_url"},
            {"role": "user", "content": [text("Look"), PICTURE]},
        ]
    }
    messages = decode_request(json.dump(asked)).messages
    assert first_picture(messages) == "messages.2.content.1"
    assert first_picture(messages[:2]) is None
    quoted: JsonObject = {"role": "user", "content": "Hi", "note": {"image_url": 1}}
    odd = decode_request(json.dump({"messages": [quoted]})).messages
    assert first_picture(odd) is None
