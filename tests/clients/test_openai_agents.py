"""The agents SDK of OpenAI, over chat completions."""

from collections.abc import AsyncIterator

import pytest

from tests.fakes.tool_loops import FACTS, MODEL, PARIS, TRIP, Fact, Served, Tools, check_trip_ended

pytest.importorskip("agents", reason="needs the extra `clients`")

from agents import Agent, OpenAIChatCompletionsModel, Runner, function_tool
from openai import AsyncOpenAI


@pytest.fixture
async def model(served: Served) -> AsyncIterator[OpenAIChatCompletionsModel]:
    async with AsyncOpenAI(base_url=served.url, api_key="none", max_retries=0) as client:
        yield OpenAIChatCompletionsModel(model=MODEL, openai_client=client)


def agent(model: OpenAIChatCompletionsModel, tools: Tools) -> Agent[None]:
    offered = [function_tool(tools.get_weather), function_tool(tools.get_time)]
    return Agent(name="Guide", instructions="Help.", model=model, tools=[*offered])


async def test_an_agent_runs_its_tools_and_answers(
    served: Served, model: OpenAIChatCompletionsModel
) -> None:
    tools = Tools([])
    check_trip_ended(served, tools, (await Runner.run(agent(model, tools), TRIP)).final_output)


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
    check_trip_ended(served, tools, result.final_output)


async def test_response_is_parsed_into_a_class(
    served: Served, model: OpenAIChatCompletionsModel
) -> None:
    guide = Agent[None](name="Guide", model=model, output_type=Fact)
    assert (await Runner.run(guide, FACTS)).final_output == PARIS
    assert served.generations() == 1


async def test_an_agent_with_tools_and_an_output_type_returns_the_output_type(
    served: Served, model: OpenAIChatCompletionsModel
) -> None:
    """Every request has both tools and a response format."""
    tools = Tools([])
    guide = Agent[None](
        name="Guide", model=model, tools=[function_tool(tools.get_weather)], output_type=Fact
    )
    assert (await Runner.run(guide, "Look at the sky first. [[Graz]]")).final_output == PARIS
    assert tools.called == [("get_weather", "Graz")]
    assert served.generations() == 2
