import pytest

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonSchema, JsonValue
from proxy.conversation.messages import Message
from proxy.conversation.requests import Request
from proxy.conversation.tools import NamedTool, Tool, ToolCall, ToolUse
from proxy.dialects.openai_chat.decode import (
    ReadChoice,
    decode_messages,
    decode_request,
    read_choice,
)
from proxy.dialects.openai_chat.schema import ChatCompletionRequest
from proxy.dialects.wire_schema import check
from proxy.errors import InvalidRequest
from tests.fakes.arrivals import is_linear
from tests.fakes.playbook import CLOCK, WEATHER

USER: JsonObject = {"role": "user", "content": "Hello"}


def request(**members: JsonValue) -> Request:
    return decode_request(json.dump({"messages": [USER], **members}))


def message(**members: JsonValue) -> Message:
    return request(messages=[{"role": "user", **members}]).messages[0]


def tool(name: str, **function: JsonValue) -> JsonObject:
    return {"type": "function", "function": {"name": name, **function}}


def problem(body: bytes) -> str:
    with pytest.raises(InvalidRequest) as caught:
        decode_request(body)
    return str(caught.value)


class TestARequest:
    def test_keeps_every_member_as_the_client_wrote_it_and_in_its_order(self) -> None:
        body = (
            b' {"temperature" : 1.50,"messages":[ {"content":"\\u00fc","role":"user" } ,\n'
            b'{"role":"assistant","content":null}],"x":{"b":1,  "a":[]},"m\\u006fdel":"m"}\n'
        )
        read = decode_request(body)

        assert list(read.fields.items()) == [
            ("temperature", b"1.50"),
            (
                "messages",
                b'[ {"content":"\\u00fc","role":"user" } ,\n{"role":"assistant","content":null}]',
            ),
            ("x", b'{"b":1,  "a":[]}'),
            ("model", b'"m"'),
        ]
        assert read.messages == (
            Message("user", "ü", b'{"content":"\\u00fc","role":"user" }'),
            Message("assistant", "", b'{"role":"assistant","content":null}'),
        )
        assert read.model == "m"

    def test_asks_for_little_if_nothing_is_said(self) -> None:
        read = request()

        assert read == Request(model="", messages=read.messages, fields=read.fields)

    def test_null_means_nothing_is_said(self) -> None:
        names = ["model", "tools", "tool_choice", "stream", "stream_options", "max_tokens", "stop"]
        read = request(**dict.fromkeys(names), parallel_tool_calls=None, response_format=None)

        assert read == Request(model="", messages=read.messages, fields=read.fields)

    @pytest.mark.parametrize(
        ("content", "text"),
        [
            ("Hi", "Hi"),
            (None, ""),
            ([], ""),
            ([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "a\nb"),
            ([{"type": "image_url", "image_url": "data:,x"}, {"type": "text", "text": "b"}], "b"),
        ],
    )
    def test_joins_the_text_of_a_message(self, content: JsonValue, text: str) -> None:
        assert message(content=content).text == text

    def test_knows_what_a_tool_result_answers(self) -> None:
        assert message(role="tool", content="x", tool_call_id="c").tool_call_id == "c"

    @pytest.mark.parametrize(
        ("arguments", "text"),
        [('{"a": 1}', '{"a": 1}'), ("", ""), (None, ""), ({"a": [1]}, '{"a":[1]}'), ("{", "{")],
    )
    def test_reads_the_calls_of_the_history(self, arguments: JsonValue, text: str) -> None:
        call: JsonObject = {"id": "c", "function": {"name": "f", "arguments": arguments}}
        nameless: JsonObject = {"function": {"name": "g"}}
        read = message(role="assistant", tool_calls=[call, nameless])

        assert read.calls == (ToolCall("c", "f", text), ToolCall("", "g", ""))

    def test_reads_tools_with_all_kinds_of_parameters(self) -> None:
        offered = [
            tool("a", parameters={"type": "object"}),
            tool("b"),
            tool("c", parameters=None),
            tool("d", parameters=False),
        ]
        empty: JsonObject = {"type": "object", "properties": {}}

        assert request(tools=[*offered]).tools == (
            Tool("a", {"type": "object"}, json.dump(offered[0])),
            Tool("b", empty, json.dump(offered[1])),
            Tool("c", empty, json.dump(offered[2])),
            Tool("d", parameters=False, source=json.dump(offered[3])),
        )

    @pytest.mark.parametrize("mode", ["auto", "required"])
    def test_reads_which_of_the_tools_may_be_called(self, mode: str) -> None:
        some: JsonObject = {"mode": mode, "tools": [tool("g"), tool("f")]}
        choice: JsonObject = {"type": "allowed_tools", "allowed_tools": some}
        read = request(tools=[tool("f"), tool("g"), tool("h")], tool_choice=choice)
        assert (read.tool_choice, read.allowed_tools) == (ToolUse(mode), frozenset("fg"))
        assert read.fields["tool_choice"] == json.dump(mode)
        assert [one.name for one in read.tools] == ["f", "g", "h"]

    def test_reads_how_to_answer(self) -> None:
        read = request(
            stream=True,
            stream_options={"include_usage": True},
            parallel_tool_calls=False,
            max_tokens=5,
            stop=["", "x"],
        )

        assert (read.stream, read.include_usage, read.parallel_tool_calls) == (True, True, False)
        assert (read.max_tokens, read.stop_strings) == (5, True)

    @pytest.mark.parametrize(("stop", "is_set"), [("x", True), ("", False), ([""], False)])
    def test_tells_whether_there_are_stop_strings(self, stop: JsonValue, is_set: bool) -> None:
        assert request(stop=stop).stop_strings is is_set

    def test_prefers_the_newer_name_of_the_token_limit(self) -> None:
        assert request(max_tokens=5, max_completion_tokens=0).max_tokens == 0

    @pytest.mark.parametrize(
        ("wanted", "schema"),
        [
            (None, None),
            ({"type": "text"}, None),
            ({"type": "json_object"}, {"type": "object"}),
            ({"type": "json_object", "schema": {"type": "array"}}, {"type": "array"}),
            ({"type": "json_schema"}, {"type": "object"}),
            ({"type": "json_schema", "json_schema": {"name": "n"}}, {"type": "object"}),
            ({"type": "json_schema", "json_schema": {"schema": True}}, True),
            ({"type": "json_schema", "json_schema": {"schema": {"const": 1}}}, {"const": 1}),
        ],
    )
    def test_reads_the_form_of_the_answer(
        self, wanted: JsonValue, schema: JsonSchema | None
    ) -> None:
        assert request(response_format=wanted).answer_schema == schema

    def test_names_the_form_of_the_answer_that_is_no_schema(self) -> None:
        with pytest.raises(InvalidRequest) as raised:
            request(response_format={"type": "json_schema", "json_schema": {"schema": 5}})
        assert raised.value.param == "response_format.json_schema.schema"

    def test_takes_time_linear_in_the_history(self) -> None:
        def body(size: int) -> str:
            return json.dump_text({"messages": [{**USER, "n": n} for n in range(size)]})

        assert is_linear(lambda text: decode_request(text.encode()), body, 4_000)


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (b"", "body: Expected a JSON object, got nothing."),
        (b" \n", "body: Expected a JSON object, got nothing."),
        (b"[]", "body: Expected a JSON object, got an array."),
        (b"5", "body: Expected a JSON object, got a number."),
        (b"null", "body: Expected a JSON object, got null."),
        (b'{\n"a":}', "body: This is not valid JSON: expected value at line 2 column 5."),
        (
            b'{"a":1,"a":2}',
            'body: This is not valid JSON: Detected duplicate key "a" at line 1 column 12.',
        ),
        (b'{"a":NaN}', "body: This is not valid JSON: expected value at line 1 column 6."),
        (
            b'{"a":"\xff"}',
            "body: This is not valid JSON: invalid unicode code point at line 1 column 7.",
        ),
        (
            b"[" * 300,
            "body: This is not valid JSON: recursion limit exceeded at line 1 column 202.",
        ),
        (b"{}", "messages: This member is required, and it is missing."),
    ],
)
def test_a_body_that_is_no_request_is_explained(body: bytes, sentence: str) -> None:
    assert problem(body) == sentence


@pytest.mark.parametrize(
    ("members", "sentence"),
    [
        (
            {"tools": [tool("f"), tool("g"), tool("f")]},
            "tools.2.function.name: Two tools are named 'f'. Rename one.",
        ),
        (
            {"tools": [tool(" ")]},
            "tools.0.function.name: Expected the name of the function, got an empty string.",
        ),
        (
            {"tools": [tool("a\nb")]},
            "tools.0.function.name: A name must not contain control or invisible characters.",
        ),
        (
            {"tool_choice": "required", "tools": []},
            "tool_choice: It asks for a tool call, but `tools` is empty.",
        ),
        ({"tool_choice": tool("f")}, "tool_choice: It asks for a tool call, but `tools` is empty."),
        (
            {"tools": [tool("f"), tool("g")], "tool_choice": tool("h")},
            "tool_choice.function.name: There is no tool 'h' among the offered ones: f, g.",
        ),
    ],
)
def test_members_that_contradict_each_other_are_explained(
    members: JsonObject, sentence: str
) -> None:
    assert problem(json.dump({"messages": [USER], **members})) == sentence


def test_messages_are_read_without_a_request_around_them() -> None:
    source = b'{ "role":"user", "content":"Hi" }'
    assert decode_messages([source]) == (Message("user", "Hi", source),)
    assert decode_messages([]) == ()
    with pytest.raises(InvalidRequest):
        decode_messages([b'{"content":"Hi"}'])


def named(name: str) -> JsonObject:
    return {"type": "function", "function": {"name": name}}


def some(mode: str, *names: str) -> JsonObject:
    tools: list[JsonValue] = [named(name) for name in names]
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": tools}}


def read_one(choice: JsonValue) -> ReadChoice:
    checked = check(ChatCompletionRequest, {"messages": [{"role": "user"}], "tool_choice": choice})
    return read_choice(checked.tool_choice, (WEATHER, CLOCK))


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (None, (ToolUse.AUTO, None)),
        ("auto", (ToolUse.AUTO, None)),
        ("none", (ToolUse.NONE, None)),
        ("required", (ToolUse.REQUIRED, None)),
        (named("get_time"), (NamedTool("get_time"), None)),
        (some("auto", "get_time"), (ToolUse.AUTO, frozenset(("get_time",)))),
        (some("required", "get_time"), (ToolUse.REQUIRED, frozenset(("get_time",)))),
    ],
)
def test_a_choice_says_how_tools_may_be_used_and_which(
    choice: JsonValue, expected: ReadChoice
) -> None:
    assert read_one(choice) == expected


@pytest.mark.parametrize(
    ("choice", "param"),
    [
        (named("x"), "tool_choice.function.name"),
        (some("auto", "get_time", "x"), "tool_choice.allowed_tools.tools.1.function.name"),
    ],
)
def test_only_what_is_offered_can_be_chosen(choice: JsonValue, param: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        read_one(choice)
    assert caught.value.param == param


def test_without_tools_there_is_nothing_to_choose() -> None:
    assert read_choice(None, ()) == (ToolUse.AUTO, None)
    with pytest.raises(InvalidRequest, match="`tools` is empty"):
        read_choice("required", ())
