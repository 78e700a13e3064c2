"""The agents SDK of OpenAI, over chat completions."""

from collections.abc import AsyncIterator

import pytest

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
    awaits_free_prose,
)

pytest.importorskip("agents", reason="needs the extra `clients`")

from agents import Agent, OpenAIChatCompletionsModel, Runner, function_tool
from openai import AsyncOpenAI

pytestmark = pytest.mark.anyio


@pytest.fixture
async def model(served: Served) -> AsyncIterator[OpenAIChatCompletionsModel]:
    async with AsyncOpenAI(base_url=served.url, api_key="none", max_retries=0) as client:
        yield OpenAIChatCompletionsModel(model=MODEL, openai_client=client)


def agent(model: OpenAIChatCompletionsModel, tools: Tools) -> Agent[None]:
    offered = [function_tool(tools.get_weather), function_tool(tools.get_time)]
    return Agent(name="Guide", instructions="Help.", model=model, tools=[*offered])


def check_trip(served: Served, tools: Tools, answer: object) -> None:
    assert answer == TRIP_ANSWER
    assert sorted(tools.called[:2]) == sorted(TRIP_CALLS[:2])
    assert tools.called[2:] == list(TRIP_CALLS[2:])
    assert served.generations() == TRIP_GENERATIONS


@awaits_free_prose
async def test_an_agent_runs_its_tools_and_answers(
    served: Served, model: OpenAIChatCompletionsModel
) -> None:
    tools = Tools([])
    check_trip(served, tools, (await Runner.run(agent(model, tools), TRIP)).final_output)


@awaits_free_prose
async def test_an_agent_streams_its_answer(
    served: Served, model: OpenAIChatCompletionsModel
) -> None:
    tools = Tools([])
    result = Runner.run_streamed(agent(model, tools), TRIP)
    deltas = 0
    async for event in result.stream_events():
        if event.type == "raw_response_event":
            deltas += event.data.type == "response.output_text.delta"
    assert deltas > 2, "the answer came in one piece"
    check_trip(served, tools, result.final_output)


async def test_an_answer_has_the_form_of_a_class(
    served: Served, model: OpenAIChatCompletionsModel
) -> None:
    guide = Agent[None](name="Guide", model=model, output_type=Fact)
    assert (await Runner.run(guide, FACTS)).final_output == FACT
    assert served.generations() == 1


async def test_an_answer_has_its_form_beside_tools_too(
    served: Served, model: OpenAIChatCompletionsModel
) -> None:
    """Every request offers the tools and wants the form."""
    tools = Tools([])
    guide = Agent[None](
        name="Guide",
        model=model,
        tools=[function_tool(tools.get_weather)],
        output_type=Fact,
    )
    assert (await Runner.run(guide, "Look at the sky first. [[Graz]]")).final_output == FACT
    assert tools.called == [("get_weather", "Graz")]
    assert served.generations() == 2
