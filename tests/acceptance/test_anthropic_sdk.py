"""The official Anthropic SDK, Temper as users run it, and a real llama-server."""

import asyncio
import re
from collections.abc import Iterator
from typing import cast

import anthropic
import pytest
from anthropic import omit
from anthropic.types import Message, MessageParam, ToolParam

from proxy.conversation import json
from tests.fakes.llama import CONTEXT_TOKENS
from tests.fakes.scripts import LONG_CITY, TOOLS, reply_to
from tests.fakes.sdk_answers import SdkAnswer, SdkQuestion, check_as_in_chat, each_answer

WAYS = ("whole", "stream", "async stream", "beta stream")
REASONS = {"end_turn": "stop", "tool_use": "tool_calls", "max_tokens": "length"}


def in_messages(tool: json.JsonObject) -> ToolParam:
    """Describe a tool in the format of the Messages API."""
    function = cast("json.JsonObject", tool["function"])
    schema = cast("dict[str, object]", function["parameters"])
    name, description = str(function["name"]), str(function["description"])
    return {"name": name, "description": description, "input_schema": schema}


OFFERED = [*map(in_messages, TOOLS)]


@pytest.fixture
def client(url: str) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=url, api_key="none", max_retries=0) as opened:
        yield opened


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> str:
    """The ways to read a response: not streamed, and with each of the SDK's accumulators."""
    return str(request.param)


def user(text: str) -> MessageParam:
    return {"role": "user", "content": text}


def get(url: str, way: str, question: SdkQuestion) -> SdkAnswer:
    if way == "async stream":
        return asyncio.run(get_async(url, question))
    with anthropic.Anthropic(base_url=url, api_key="none", max_retries=0) as client:
        tools = OFFERED if question.has_tools else omit
        if way == "whole":
            return read(
                client.messages.create(
                    model="any",
                    max_tokens=question.max_tokens,
                    messages=[user(question.prompt)],
                    tools=tools,
                    extra_headers=question.headers,
                )
            )
        if way == "stream":
            with client.messages.stream(
                model="any",
                max_tokens=question.max_tokens,
                messages=[user(question.prompt)],
                tools=tools,
                extra_headers=question.headers,
            ) as stream:
                return read(stream.get_final_message())
        with client.beta.messages.stream(  # as Claude Code does
            model="any",
            max_tokens=question.max_tokens,
            messages=[{"role": "user", "content": question.prompt}],
            tools=OFFERED if question.has_tools else omit,
            extra_headers=question.headers,
        ) as beta:
            return read(Message.model_validate(beta.get_final_message().model_dump()))


async def get_async(url: str, question: SdkQuestion) -> SdkAnswer:
    async with (
        anthropic.AsyncAnthropic(base_url=url, api_key="none", max_retries=0) as client,
        client.messages.stream(
            model="any",
            max_tokens=question.max_tokens,
            messages=[user(question.prompt)],
            tools=OFFERED if question.has_tools else omit,
            extra_headers=question.headers,
        ) as stream,
    ):
        return read(await stream.get_final_message())


def read(message: Message) -> SdkAnswer:
    """Read a response, and check the invariants that every client relies on."""
    assert message.id.startswith("msg_")
    assert (message.role, message.model) == ("assistant", "any")
    assert message.usage.input_tokens + (message.usage.cache_read_input_tokens or 0) > 0
    assert message.usage.output_tokens > 0 or not message.content
    texts: list[str] = []
    thoughts: list[str] = []
    calls: list[tuple[str, json.JsonValue]] = []
    for block in message.content:
        match block.type:
            case "text":
                assert block.text, "an empty block of text is refused when it is sent back"
                texts.append(block.text)
            case "thinking":
                assert block.signature.startswith("temper1:")
                thoughts.append(block.thinking)
            case "tool_use":
                assert block.id
                calls.append((block.name, cast("json.JsonValue", block.input)))
            case other:
                pytest.fail(f"unexpected block: {other}")
    reason = REASONS[str(message.stop_reason)]
    return SdkAnswer("".join(texts), "".join(thoughts), tuple(calls), reason)


@each_answer
def test_every_sdk_method_returns_the_same_result_as_chat_completions(
    url: str, way: str, question: SdkQuestion, answer: SdkAnswer
) -> None:
    check_as_in_chat(url, question, get(url, way, question), answer)


def test_a_call_cut_off_by_max_tokens_is_not_returned(url: str, way: str) -> None:
    answer = get(url, way, SdkQuestion("[[long call]]", max_tokens=12))
    assert answer.calls == ()
    assert answer.reason == "length"
    assert LONG_CITY[:5] not in answer.text


def test_a_streamed_text_arrives_in_several_deltas(client: anthropic.Anthropic) -> None:
    with client.messages.stream(
        model="any", max_tokens=400, messages=[user("[[prose]]")], tools=OFFERED
    ) as stream:
        pieces = list(stream.text_stream)
    assert len(pieces) > 1
    assert "".join(pieces) == reply_to("[[prose]]")


def turn_after(message: Message) -> list[MessageParam]:
    """Return the next turn: the response unchanged, and the results of its calls."""
    results = [
        {"type": "tool_result", "tool_use_id": block.id, "content": "sunny"}
        for block in message.content
        if block.type == "tool_use"
    ]
    return [
        {"role": "assistant", "content": message.content},
        cast("MessageParam", {"role": "user", "content": results}),
    ]


@pytest.mark.parametrize("prompt", ["[[call]]", "[[two calls]]", "[[thinking call]]", "[[coder]]"])
def test_second_turn_reuses_the_cached_prompt(client: anthropic.Anthropic, prompt: str) -> None:
    question = user(f"Cached: {prompt}")
    first = client.messages.create(model="any", max_tokens=400, messages=[question], tools=OFFERED)
    assert first.stop_reason == "tool_use"
    second = client.messages.create(
        model="any", max_tokens=400, messages=[question, *turn_after(first)], tools=OFFERED
    )
    assert [block.type for block in second.content] == ["text"]
    assert getattr(second.content[0], "text", "") == reply_to("<tool_response>")
    begun = first.usage.input_tokens + (first.usage.cache_read_input_tokens or 0)
    assert (second.usage.cache_read_input_tokens or 0) >= 0.95 * begun


def test_counted_tokens_equal_the_usage(client: anthropic.Anthropic) -> None:
    messages = [user("[[four]]")]
    counted = client.messages.count_tokens(model="any", messages=messages, tools=OFFERED)
    used = client.messages.create(model="any", max_tokens=9, messages=messages, tools=OFFERED).usage
    assert counted.input_tokens == used.input_tokens + (used.cache_read_input_tokens or 0)


def test_models_can_be_listed_and_retrieved(client: anthropic.Anthropic) -> None:
    (model,) = client.models.list()
    assert model.type == "model"
    assert model.max_input_tokens == CONTEXT_TOKENS
    assert client.models.retrieve(model.id) == model


def test_retrieving_an_unknown_model_is_a_not_found_error(client: anthropic.Anthropic) -> None:
    with pytest.raises(anthropic.NotFoundError) as raised:
        client.models.retrieve("nobody")
    assert error_in(raised.value)["type"] == "not_found_error"
    assert raised.value.request_id


def error_in(raised: anthropic.APIStatusError) -> json.JsonObject:
    body = cast("json.JsonObject", raised.body)
    assert body["type"] == "error"
    assert body["request_id"] == raised.request_id
    return cast("json.JsonObject", body["error"])


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"messages": [user("Hi")]}, "max_tokens: Field required"),
        (
            {"max_tokens": 9, "messages": []},
            "messages: Expected at least 1 element, got an empty array.",
        ),
        (
            {"max_tokens": 9, "messages": [{"role": "user", "content": 5}]},
            "messages.0.content: Expected ",
        ),
        (
            {"max_tokens": 9, "messages": [user("Hi")], "tool_choice": {"type": "any"}},
            "tool_choice: A tool call is required, but `tools` is empty.",
        ),
    ],
)
def test_the_message_of_an_error_names_the_field_once(
    client: anthropic.Anthropic, body: json.JsonObject, message: str
) -> None:
    with pytest.raises(anthropic.BadRequestError) as raised:
        client.post("/v1/messages", cast_to=Message, body={"model": "any", **body})
    error = error_in(raised.value)
    assert error["type"] == "invalid_request_error"
    assert str(error["message"]).startswith(message)


@pytest.mark.parametrize("is_stream", [False, True])
def test_oversized_prompt_error_has_the_wording_that_clients_parse(
    client: anthropic.Anthropic, is_stream: bool
) -> None:
    with pytest.raises(anthropic.BadRequestError) as raised:
        client.messages.create(
            model="any", max_tokens=9, messages=[user("word " * 20_000)], stream=is_stream
        )
    error = error_in(raised.value)
    assert error["type"] == "invalid_request_error"
    match = re.fullmatch(r"prompt is too long: (\d+) tokens > (\d+) maximum", str(error["message"]))
    assert match is not None
    assert int(match[1]) > int(match[2]) == CONTEXT_TOKENS


def test_the_stop_sequence_is_reported_and_the_model_named_default_can_be_retrieved(
    client: anthropic.Anthropic,
) -> None:
    messages = [user("[[prose]]")]
    plain = client.messages.create(model="any", max_tokens=50, messages=messages)
    assert (plain.stop_reason, plain.stop_sequence) == ("end_turn", None)
    stops = ["nowhere to be found", reply_to("[[prose]]")[3:8]]
    cut = client.messages.create(
        model="any", max_tokens=50, messages=messages, stop_sequences=stops
    )
    assert (cut.stop_reason, cut.stop_sequence) == ("stop_sequence", stops[1])
    with client.messages.stream(
        model="any", max_tokens=50, messages=messages, stop_sequences=stops
    ) as stream:
        streamed = stream.get_final_message()
    assert (streamed.stop_reason, streamed.stop_sequence) == ("stop_sequence", stops[1])
    assert client.models.retrieve("default").max_input_tokens == CONTEXT_TOKENS


def test_the_beta_tool_runner_runs_a_tool_and_returns_the_answer(
    client: anthropic.Anthropic,
) -> None:
    ran: list[str] = []

    @anthropic.beta_tool
    def get_weather(city: str) -> str:
        """Tell the weather in a city.

        Args:
            city: Its name.
        """
        ran.append(city)
        return "21 degrees"

    runner = client.beta.messages.tool_runner(
        model="any",
        max_tokens=200,
        tools=[get_weather],
        messages=[{"role": "user", "content": "[[coder]]"}],
    )
    answer = runner.until_done()
    assert ran == ["Turin"]
    assert answer.stop_reason == "end_turn"
