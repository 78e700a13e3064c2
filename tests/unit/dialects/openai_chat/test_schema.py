from concurrent.futures import ThreadPoolExecutor

import pytest

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.replies import ReplyFinished, TextDelta
from proxy.dialects.openai_chat.encode import CompletionBuilder, Identity
from proxy.dialects.openai_chat.schema import ChatCompletionRequest, chat_schemas
from proxy.dialects.wire_schema import WireObject, check
from proxy.errors import InvalidRequest

USER: JsonObject = {"role": "user", "content": "Hello"}


def content(*parts: JsonValue) -> JsonObject:
    return {"messages": [{"role": "user", "content": list(parts)}]}


def tool(**function: JsonValue) -> JsonObject:
    return {"tools": [{"type": "function", "function": {"name": "f", **function}}]}


def made(**call: JsonValue) -> JsonObject:
    return {"messages": [{"role": "assistant", "tool_calls": [call]}]}


def deep(levels: int) -> JsonObject:
    value: JsonObject = {}
    for _ in range(levels):
        value = {"a": value}
    return value


@pytest.mark.parametrize(
    "members",
    [
        {},
        {"model": "m", "temperature": 1, "top_p": 0.5, "seed": -1, "n": 1, "max_tokens": 0},
        {"n": 1.0, "max_tokens": 100.0, "max_completion_tokens": 5, "presence_penalty": -1},
        {"stop": "a"},
        {"stop": ["a", "b"]},
        {"stream": True, "stream_options": {"include_usage": True, "more": 1}},
        {"tool_choice": "auto", "parallel_tool_calls": False},
        {"tool_choice": {"type": "function", "function": {"name": "f"}}},
        {"response_format": {"type": "json_object", "schema": {}}},
        {"response_format": {"type": "json_schema", "json_schema": {"schema": {}, "strict": True}}},
        {"logprobs": True, "top_logprobs": 3, "logit_bias": {"5": -100}},
        {"store": False, "user": "u", "metadata": {"a": "b"}, "reasoning_effort": "low"},
        {
            "functions": [],
            "function_call": None,
            "temper": {"workflow": None},
            "cache_prompt": True,
        },
        {"messages": [{"role": "developer", "content": [{"type": "text", "text": "x"}]}]},
        {"messages": [{"role": "system", "content": []}, {"role": "user", "name": "me"}]},
        {"messages": [{"role": "assistant", "content": None, "refusal": None, "audio": None}]},
        {"messages": [{"role": "tool", "content": "x", "tool_call_id": "c", "name": "f"}]},
        {"messages": [{"role": "function", "content": "x", "name": "f"}]},
        made(id="c", type="function", function={"name": "f", "arguments": ""}),
        made(function={"name": "f", "arguments": {"a": 1}}, index=0, extra_content={}),
        made(id=None, function={"name": "f", "arguments": None}),
        content({"type": "image_url", "image_url": {"url": "DATA:image/png;base64,", "detail": 1}}),
        content({"type": "image_url", "image_url": "data:image/png;base64,"}),
        content({"type": "input_audio", "input_audio": {"data": "", "format": "wav"}}),
        content({"type": "file", "file": {"file_data": "data:"}}, {"type": "refusal", "why": 1}),
        tool(),
        tool(parameters=None, description=None, strict=None),
        tool(parameters=True),
        tool(parameters={"type": ["string", "null"], "$schema": "x"}, strict=True),
        tool(parameters=deep(190)),
    ],
)
def test_what_clients_send_is_accepted(members: JsonObject) -> None:
    check(ChatCompletionRequest, {"messages": [USER], **members})


@pytest.mark.parametrize(
    "name", [name for name in ChatCompletionRequest.model_fields if name != "messages"]
)
def test_null_is_the_same_as_absent(name: str) -> None:
    assert getattr(check(ChatCompletionRequest, {"messages": [USER], name: None}), name) is None


@pytest.mark.parametrize(
    ("members", "problem"),
    [
        ({"messages": None}, "messages: Expected an array, got null."),
        ({"messages": []}, "messages: Expected at least 1 element, got an empty array."),
        ({"messages": ["x"]}, "messages.0: Expected an object, got the string 'x'."),
        ({"messages": [{}]}, "messages.0.role: This member is required, and it is missing."),
        (
            {"messages": [USER, {"role": "robot"}]},
            "messages.1.role: Expected 'system', 'developer', 'user', 'assistant', 'tool' or "
            "'function', got the string 'robot'.",
        ),
        (
            {"messages": [{"role": "user", "content": 5}]},
            "messages.0.content: Expected a string or an array of parts, got the number 5.",
        ),
        (content("x"), "messages.0.content.0: Expected an object, got the string 'x'."),
        (
            content({"type": "text", "text": {}}),
            "messages.0.content.0.text: Expected a string, got an object.",
        ),
        (
            content({"type": "text"}),
            'messages.0.content.0: A part of type "text" needs a string `text`.',
        ),
        (
            content({"type": "image_url", "image_url": "http://x/y.png"}),
            "messages.0.content.0.image_url.url: Temper never fetches addresses. "
            'Send the content itself as a "data:" URL.',
        ),
        (
            content({"type": "x", "video_url": {"url": "file:///etc/passwd"}}),
            "messages.0.content.0.video_url.url: Temper never fetches addresses. "
            'Send the content itself as a "data:" URL.',
        ),
        (
            made(function={"name": "f", "arguments": [1]}),
            "messages.0.tool_calls.0.function.arguments: Expected a string or an object, "
            "got an array.",
        ),
        (
            made(id="c"),
            "messages.0.tool_calls.0.function: This member is required, and it is missing.",
        ),
        (
            {"tools": [{"type": "web_search"}]},
            "tools.0.type: Expected 'function', got the string 'web_search'.",
        ),
        (
            tool(parameters=[]),
            "tools.0.function.parameters: Expected an object, a boolean or null, "
            "got an empty array.",
        ),
        (
            {"tool_choice": "any"},
            "tool_choice: Expected 'auto', 'none' or 'required', got the string 'any'.",
        ),
        (
            {"tool_choice": True},
            'tool_choice: Expected "auto", "none", "required" or {"type": "function", '
            '"function": {"name": ...}}, got true.',
        ),
        (
            {"tool_choice": {"type": "allowed_tools", "allowed_tools": {}}},
            "tool_choice.allowed_tools.mode: This member is required, and it is missing.",
        ),
        (
            {
                "tool_choice": {
                    "type": "allowed_tools",
                    "allowed_tools": {"mode": "auto", "tools": []},
                }
            },
            "tool_choice.allowed_tools.tools: Expected at least 1 element, got an empty array.",
        ),
        ({"n": 2}, "n: One answer per request is all there is. Leave `n` out or send 1."),
        ({"n": True}, "n: Expected a whole number, got true."),
        ({"max_tokens": -1}, "max_tokens: Expected a number of at least 0, got the number -1."),
        ({"max_tokens": "9"}, "max_tokens: Expected a whole number, got the string '9'."),
        ({"top_p": float("inf")}, "top_p: Expected a finite number, got the number inf."),
        ({"stop": ["a", 1]}, "stop.1: Expected a string, got the number 1."),
        ({"stop": 1.5}, "stop: Expected a string or an array of strings, got the number 1.5."),
        ({"stream": "x" * 99}, f"stream: Expected true or false, got the string '{'x' * 40}...'."),
        ({"functions": [{}]}, "functions: Functions are offered as `tools` nowadays."),
        ({"temper": "x"}, "temper: Expected an object, got the string 'x'."),
        ({"temper": {"workflows": {}}}, "temper.workflows: There is no such option."),
    ],
)
def test_the_first_wrong_member_is_named_and_explained(members: JsonObject, problem: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        check(ChatCompletionRequest, {"messages": [USER], **members})

    assert str(caught.value) == problem


def test_one_wrong_member_is_enough_however_many_there_are() -> None:
    with pytest.raises(InvalidRequest) as caught:
        check(ChatCompletionRequest, {"messages": [5] * 100_000})

    assert caught.value.param == "messages.0"


def test_the_document_knows_every_member() -> None:
    document = ChatCompletionRequest.model_json_schema()

    assert set(document["properties"]) == set(ChatCompletionRequest.model_fields)
    assert document["additionalProperties"] is True


def test_what_checks_is_made_once_when_several_threads_need_it_first() -> None:
    class Thing(WireObject):
        name: str

    given: JsonObject = {"name": "a"}
    assert not Thing.__pydantic_complete__
    with ThreadPoolExecutor(8) as threads:
        found = [threads.submit(check, Thing, given) for _ in range(8)]
    assert {one.result().name for one in found} == {"a"}
    assert Thing.__pydantic_complete__


def test_what_checks_a_chat_is_there_before_the_first_one() -> None:
    assert ChatCompletionRequest.__pydantic_complete__


def test_requests_and_answers_are_described_by_name() -> None:
    schemas = chat_schemas()
    titles = [
        schema["title"]
        for schema in (schemas.request, schemas.answer, schemas.count, schemas.error)
    ]
    assert titles == ["ChatCompletionRequest", "ChatCompletion", "InputTokens", "Error"]


def test_an_answer_is_as_described() -> None:
    builder = CompletionBuilder(Identity("c", 1, "m"))
    builder.add(TextDelta("Hello"))
    builder.add(ReplyFinished("stop"))
    schema = json.parse(json.dump(chat_schemas().answer))
    assert isinstance(schema, dict)
    assert schema["required"] == ["id", "object", "created", "model", "choices", "usage"]
    assert set(builder.completion()) >= {str(name) for name in schema["required"]}
