"""An agent loop with the OpenAI SDK and Temper's default settings.

The model makes no errors, so Temper must not request any additional generation.
"""

from collections.abc import Iterable, Iterator
from typing import cast

import openai
import pytest
from openai.types.chat import (
    ChatCompletion,
    ChatCompletionMessageParam,
    ChatCompletionMessageToolCallUnion,
    ChatCompletionToolUnionParam,
)

from proxy.conversation import json
from tests.fakes.tool_loops import (
    FACTS,
    MODEL,
    PARIS,
    TOOLS,
    TRIP,
    TRIP_ANSWER,
    TRIP_CALLS,
    TRIP_GENERATIONS,
    Fact,
    Served,
    Tools,
    temper_with,
)

OFFERED = cast("list[ChatCompletionToolUnionParam]", [*TOOLS])


@pytest.fixture(scope="module", params=["mock", "llama-server"])
def served(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    """Temper in front of each backend."""
    with temper_with(request.param, tmp_path_factory.mktemp("loops")) as running:
        yield running


@pytest.fixture
def client(served: Served) -> Iterator[openai.OpenAI]:
    """The SDK with its default options, but without retries."""
    with openai.OpenAI(base_url=served.url, api_key="none", max_retries=0) as made:
        yield made


@pytest.mark.parametrize("way", ["whole", "streamed", "parsed"])
def test_a_loop_with_the_openai_sdk_gets_the_answer_without_extra_generations(
    served: Served, client: openai.OpenAI, way: str
) -> None:
    earlier, tools = served.generations(), Tools([])
    messages: list[ChatCompletionMessageParam] = [{"role": "user", "content": TRIP}]
    choice = answer(client, messages, way).choices[0]
    while choice.message.tool_calls and len(tools.called) < 2 * len(TRIP_CALLS):
        assert choice.finish_reason == "tool_calls"
        messages.append(cast("ChatCompletionMessageParam", choice.message))
        messages += results(tools, choice.message.tool_calls)
        choice = answer(client, messages, way).choices[0]
    assert choice.message.content == TRIP_ANSWER
    assert choice.finish_reason == "stop"
    assert tuple(tools.called) == TRIP_CALLS
    assert served.generations() - earlier == TRIP_GENERATIONS


def answer(
    client: openai.OpenAI, messages: Iterable[ChatCompletionMessageParam], way: str
) -> ChatCompletion:
    """Send a request with one of the methods of the SDK."""
    if way == "whole":
        return client.chat.completions.create(model=MODEL, messages=messages, tools=OFFERED)
    options = {"include_usage": True} if way == "streamed" else {}
    with client.chat.completions.stream(
        model=MODEL,
        messages=messages,
        tools=OFFERED,
        stream_options=cast("openai.types.chat.ChatCompletionStreamOptionsParam", options),
    ) as stream:
        for _ in stream:
            pass
        return stream.get_final_completion()


def results(
    tools: Tools, calls: Iterable[ChatCompletionMessageToolCallUnion]
) -> Iterator[ChatCompletionMessageParam]:
    """Run the called tools."""
    for call in calls:
        assert call.type == "function"
        arguments = cast("dict[str, str]", json.parse(call.function.arguments))
        result = tools.run(call.function.name, arguments)
        yield {"role": "tool", "tool_call_id": call.id, "content": result}


@pytest.mark.parametrize("is_streamed", [False, True])
def test_response_is_parsed_into_a_class(
    served: Served, client: openai.OpenAI, is_streamed: bool
) -> None:
    earlier = served.generations()
    messages: list[ChatCompletionMessageParam] = [{"role": "user", "content": FACTS}]
    if is_streamed:
        with client.chat.completions.stream(
            model=MODEL, messages=messages, response_format=Fact
        ) as stream:
            parsed = stream.get_final_completion().choices[0].message.parsed
    else:
        completion = client.chat.completions.parse(
            model=MODEL, messages=messages, response_format=Fact
        )
        parsed = completion.choices[0].message.parsed
    assert parsed == PARIS
    assert served.generations() - earlier == 1
