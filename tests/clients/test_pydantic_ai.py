"""pydantic-ai's agents."""

from collections.abc import AsyncIterator

import pytest

from tests.fakes.tool_loops import FACTS, MODEL, PARIS, TRIP, Fact, Served, Tools, check_trip_ended

pytest.importorskip("pydantic_ai", reason="needs the extra `clients`")

from openai import AsyncOpenAI
from pydantic_ai import Agent, NativeOutput
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider


@pytest.fixture
async def model(served: Served) -> AsyncIterator[OpenAIChatModel]:
    async with AsyncOpenAI(base_url=served.url, api_key="none", max_retries=0) as client:
        yield OpenAIChatModel(MODEL, provider=OpenAIProvider(openai_client=client))


async def test_an_agent_runs_its_tools_and_answers(served: Served, model: OpenAIChatModel) -> None:
    tools = Tools([])
    agent = Agent(model, tools=[tools.get_weather, tools.get_time])
    check_trip_ended(served, tools, (await agent.run(TRIP)).output)


async def test_an_agent_streams_its_answer(served: Served, model: OpenAIChatModel) -> None:
    tools = Tools([])
    agent = Agent(model, tools=[tools.get_weather, tools.get_time])
    answer = ""
    async with agent.iter(TRIP) as run:
        async for node in run:
            if Agent.is_model_request_node(node):
                async with node.stream(run.ctx) as stream:
                    answer = "".join([piece async for piece in stream.stream_text(delta=True)])
    check_trip_ended(served, tools, answer)


async def test_an_agent_returns_its_output_type_by_the_output_tool(
    served: Served, model: OpenAIChatModel
) -> None:
    agent = Agent(model, output_type=Fact)
    assert (await agent.run("File it. [[call final_result]]")).output == PARIS
    assert served.generations() == 1


async def test_a_tool_is_run_before_the_output_tool(served: Served, model: OpenAIChatModel) -> None:
    tools = Tools([])
    agent = Agent(model, output_type=Fact, tools=[tools.get_weather])
    assert (await agent.run("Look at the sky first. [[Bern]]")).output == PARIS
    assert tools.called == [("get_weather", "Bern")]
    assert served.generations() == 2


async def test_an_answer_has_the_requested_response_format(
    served: Served, model: OpenAIChatModel
) -> None:
    agent = Agent(model, output_type=NativeOutput(Fact))
    assert (await agent.run(FACTS)).output == PARIS
    assert served.generations() == 1
