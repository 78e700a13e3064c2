"""litellm as a library, in a loop of its user's own."""

import pytest

from benchmarks.load.workloads import described
from proxy.conversation import json
from tests.clients.forms import FACT, Fact
from tests.fakes.tool_loops import (
    FACTS,
    MODEL,
    TRIP,
    TRIP_ANSWER,
    TRIP_CALLS,
    TRIP_GENERATIONS,
    Served,
    Tools,
)

pytest.importorskip("litellm", reason="needs the extra `clients-litellm`")

import litellm

pytestmark = [
    pytest.mark.anyio,
    # of litellm's own types
    pytest.mark.filterwarnings("ignore:Items? '.+' on TypedDict class:UserWarning"),
]

OFFERED = [
    described("get_weather", {"city": {"type": "string"}}, required=("city",)),
    described("get_time", {}, required=()),
]


async def answer(served: Served, messages: list[object], *, is_streamed: bool) -> litellm.Message:
    found = await litellm.acompletion(
        model=f"openai/{MODEL}",
        api_base=served.url,
        api_key="none",
        messages=list(messages),
        tools=OFFERED,
        stream=is_streamed,
    )
    if is_streamed:
        found = litellm.stream_chunk_builder([chunk async for chunk in found], messages=messages)
    return found.choices[0].message


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_a_loop_with_tools_ends_in_the_answer(served: Served, is_streamed: bool) -> None:
    tools = Tools([])
    messages: list[object] = [{"role": "user", "content": TRIP}]
    message = await answer(served, messages, is_streamed=is_streamed)
    while message.tool_calls and len(tools.called) < 2 * len(TRIP_CALLS):
        messages.append(message)
        for call in message.tool_calls:
            arguments = json.parse(call.function.arguments)
            assert isinstance(arguments, dict)
            is_weather = call.function.name == "get_weather"
            result = tools.get_weather(str(arguments["city"])) if is_weather else tools.get_time()
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
        message = await answer(served, messages, is_streamed=is_streamed)
    assert message.content == TRIP_ANSWER
    assert tuple(tools.called) == TRIP_CALLS
    assert served.generations() == TRIP_GENERATIONS


async def test_an_answer_has_the_form_of_a_class(served: Served) -> None:
    found = await litellm.acompletion(
        model=f"openai/{MODEL}",
        api_base=served.url,
        api_key="none",
        messages=[{"role": "user", "content": FACTS}],
        response_format=Fact,
    )
    assert Fact.model_validate_json(found.choices[0].message.content) == FACT
    assert served.generations() == 1
