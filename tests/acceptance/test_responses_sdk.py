"""The Responses API with the official OpenAI SDK, on a real llama-server behind Temper."""

import asyncio
from collections.abc import Iterator
from typing import cast

import openai
import pytest
from openai import omit
from openai.lib.streaming.responses import ResponseStreamEvent
from openai.types.responses import (
    FunctionToolParam,
    Response,
    ResponseInputParam,
    ResponseUsage,
    ToolParam,
)

from proxy.conversation import json
from tests.fakes.scripts import LONG_CITY, TOOLS, reply_to
from tests.fakes.sdk_answers import SdkAnswer, SdkQuestion, check_as_in_chat, each_answer

WAYS = ("whole", "stream", "async stream")


def in_responses(tool: json.JsonObject) -> FunctionToolParam:
    """Describe a tool in the format of the Responses API."""
    function = cast("json.JsonObject", tool["function"])
    return {
        "type": "function",
        "name": str(function["name"]),
        "description": str(function["description"]),
        "parameters": cast("dict[str, object]", function["parameters"]),
        "strict": False,
    }


OFFERED: list[ToolParam] = [*map(in_responses, TOOLS)]


@pytest.fixture
def client(url: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as opened:
        yield opened


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> str:
    """The ways to read a response: not streamed, and with each of the SDK's accumulators."""
    return str(request.param)


def get(url: str, way: str, question: SdkQuestion) -> SdkAnswer:
    if way == "async stream":
        return asyncio.run(get_async(url, question))
    with openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        if way == "whole":
            response = client.responses.create(
                model="any",
                input=question.prompt,
                max_output_tokens=question.max_tokens,
                tools=OFFERED if question.has_tools else omit,
                extra_headers=question.headers,
            )
            return read(response)
        with client.responses.stream(
            model="any",
            input=question.prompt,
            max_output_tokens=question.max_tokens,
            tools=OFFERED if question.has_tools else omit,
            extra_headers=question.headers,
        ) as stream:
            return [answer for event in stream if (answer := end_in(event))][-1]


async def get_async(url: str, question: SdkQuestion) -> SdkAnswer:
    async with (
        openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client,
        client.responses.stream(
            model="any",
            input=question.prompt,
            max_output_tokens=question.max_tokens,
            tools=OFFERED if question.has_tools else omit,
            extra_headers=question.headers,
        ) as stream,
    ):
        return [answer async for event in stream if (answer := end_in(event))][-1]


def end_in(event: "ResponseStreamEvent[None]") -> SdkAnswer | None:
    """Read the last event of a stream, in which the SDK has accumulated the response."""
    if event.type == "response.completed" or event.type == "response.incomplete":
        return read(event.response)
    return None


def read(response: Response) -> SdkAnswer:
    """Read a response, and check the invariants that every client relies on."""
    assert response.id.startswith("resp_")
    assert response.model == "any"
    assert usage_of(response).input_tokens > 0
    assert len({item.id for item in response.output}) == len(response.output)
    thoughts: list[str] = []
    calls: list[tuple[str, json.JsonValue]] = []
    for item in response.output:
        if item.type == "reasoning":
            thoughts += [part.text for part in item.content or []]
        if item.type == "function_call" and item.status == "completed":
            calls.append((item.name, json.parse(item.arguments)))
    reason = "tool_calls" if calls else "stop"
    if response.status == "incomplete":
        assert response.incomplete_details is not None
        assert response.incomplete_details.reason == "max_output_tokens"
        reason = "length"
    return SdkAnswer(response.output_text, "".join(thoughts), tuple(calls), reason)


def usage_of(response: Response) -> ResponseUsage:
    assert response.usage is not None
    return response.usage


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


def test_a_streamed_text_arrives_in_several_deltas(client: openai.OpenAI) -> None:
    stream = client.responses.create(model="any", input="[[prose]]", tools=OFFERED, stream=True)
    pieces = [event.delta for event in stream if event.type == "response.output_text.delta"]
    assert len(pieces) > 1
    assert "".join(pieces) == reply_to("[[prose]]")


def results_of(response: Response) -> ResponseInputParam:
    return [
        {"type": "function_call_output", "call_id": item.call_id, "output": "sunny"}
        for item in response.output
        if item.type == "function_call"
    ]


def question(prompt: str) -> ResponseInputParam:
    return [{"type": "message", "role": "user", "content": prompt}]


@pytest.mark.parametrize("prompt", ["[[call]]", "[[two calls]]", "[[thinking call]]", "[[coder]]"])
@pytest.mark.parametrize("is_chain", [False, True])
def test_second_turn_reuses_the_cached_prompt(
    client: openai.OpenAI, prompt: str, is_chain: bool
) -> None:
    sdk_question = question(f"Cached {is_chain}: {prompt}")
    first = client.responses.create(model="any", input=sdk_question, tools=OFFERED, store=is_chain)
    results = results_of(first)
    assert results
    earlier = cast(
        "ResponseInputParam", [*sdk_question, *(item.to_dict() for item in first.output)]
    )
    second = client.responses.create(
        model="any",
        input=results if is_chain else [*earlier, *results],
        previous_response_id=first.id if is_chain else omit,
        tools=OFFERED,
    )
    assert second.output_text == reply_to("<tool_response>")
    usage = usage_of(second)
    assert usage.input_tokens_details.cached_tokens >= 0.95 * usage_of(first).input_tokens


def test_chained_responses_produce_the_same_prompt_as_whole_input(client: openai.OpenAI) -> None:
    sdk_question = question("[[thinking call]] in a chain")
    first = client.responses.create(model="any", input=sdk_question, tools=OFFERED)
    results = results_of(first)
    chained = client.responses.create(
        model="any", input=results, previous_response_id=first.id, tools=OFFERED
    )
    earlier = cast(
        "ResponseInputParam", [*sdk_question, *(item.to_dict() for item in first.output)]
    )
    whole = client.responses.create(model="any", input=[*earlier, *results], tools=OFFERED)
    used = usage_of(whole)
    assert used.input_tokens == usage_of(chained).input_tokens
    # the last token is always computed, because generation starts from its logits
    assert used.input_tokens_details.cached_tokens == used.input_tokens - 1
    assert chained.previous_response_id == first.id


def test_counted_tokens_equal_the_usage(client: openai.OpenAI) -> None:
    counted = client.responses.input_tokens.count(model="any", input="[[four]]", tools=OFFERED)
    used = client.responses.create(model="any", input="[[four]]", tools=OFFERED)
    assert counted.input_tokens == usage_of(used).input_tokens


def test_response_is_stored_until_deleted(client: openai.OpenAI) -> None:
    made = client.responses.create(model="any", input="[[four]]")
    assert client.responses.retrieve(made.id).output_text == reply_to("[[four]]")
    (item,) = client.responses.input_items.list(made.id)
    assert item.type == "message"
    client.responses.delete(made.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(made.id)


def test_unknown_previous_response_is_a_client_error(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as raised:
        client.responses.create(model="any", input="Hi", previous_response_id="resp_nobody")
    assert raised.value.code == "previous_response_not_found"
    assert raised.value.param == "previous_response_id"


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "input"),
        ({"input": [{"type": "message", "role": "user", "content": 5}]}, "input.0.content"),
        ({"input": "Hi", "background": True}, "background"),
        ({"input": "Hi", "tool_choice": "required"}, "tool_choice"),
    ],
)
def test_an_error_names_the_invalid_field_once(
    client: openai.OpenAI, body: json.JsonObject, param: str
) -> None:
    with pytest.raises(openai.BadRequestError) as raised:
        client.post("/responses", cast_to=Response, body={"model": "any", **body})
    assert raised.value.param == param
    assert raised.value.message.count(f"{param}: ") == 1


@pytest.mark.parametrize("is_stream", [False, True])
def test_an_oversized_prompt_is_a_client_error(client: openai.OpenAI, is_stream: bool) -> None:
    with pytest.raises(openai.BadRequestError) as raised:
        client.responses.create(model="any", input="word " * 20_000, stream=is_stream)
    assert raised.value.code == "context_length_exceeded"
    assert "maximum context length" in raised.value.message
