"""litellm as a library, in a handwritten loop."""

import json

import pytest

from tests.fakes.tool_loops import (
    FACTS,
    MODEL,
    PARIS,
    TOOLS,
    TRIP,
    TRIP_CALLS,
    Fact,
    Served,
    Tools,
    check_trip_ended,
)

pytest.importorskip("litellm", reason="needs the extra `clients-litellm`")

import litellm

pytestmark = [
    # of litellm's own types
    pytest.mark.filterwarnings("ignore:Items? '.+' on TypedDict class:UserWarning")
]


async def answer(served: Served, messages: list[object], *, is_streamed: bool) -> litellm.Message:
    response = await litellm.acompletion(
        model=f"openai/{MODEL}",
        api_base=served.url,
        api_key="none",
        messages=list(messages),
        tools=[*TOOLS],
        stream=is_streamed,
    )
    if is_streamed:
        response = litellm.stream_chunk_builder(
            [chunk async for chunk in response], messages=messages
        )
    return response.choices[0].message


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_a_handwritten_loop_with_litellm_gets_the_answer(
    served: Served, is_streamed: bool
) -> None:
    tools = Tools([])
    messages: list[object] = [{"role": "user", "content": TRIP}]
    message = await answer(served, messages, is_streamed=is_streamed)
    while message.tool_calls and len(tools.called) < 2 * len(TRIP_CALLS):
        messages.append(message)
        for call in message.tool_calls:
            result = tools.run(call.function.name, json.loads(call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
        message = await answer(served, messages, is_streamed=is_streamed)
    check_trip_ended(served, tools, message.content)


async def test_response_is_parsed_into_a_class(served: Served) -> None:
    response = await litellm.acompletion(
        model=f"openai/{MODEL}",
        api_base=served.url,
        api_key="none",
        messages=[{"role": "user", "content": FACTS}],
        response_format=Fact,
    )
    assert Fact.model_validate_json(response.choices[0].message.content) == PARIS
    assert served.generations() == 1
