"""langchain's agents, and a handwritten graph of langgraph."""

from collections.abc import AsyncIterator

import pytest

from tests.fakes.tool_loops import (
    FACTS,
    MODEL,
    PARIS,
    TRIP,
    TRIP_ANSWER,
    Fact,
    Served,
    Tools,
    check_trip_ended,
)

pytest.importorskip("langchain_openai", reason="needs the extra `clients`")

from langchain.agents import create_agent
from langchain.agents.structured_output import ToolStrategy
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_openai import ChatOpenAI
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from openai import DefaultAsyncHttpxClient, DefaultHttpxClient


@pytest.fixture
async def model(served: Served) -> AsyncIterator[ChatOpenAI]:
    with DefaultHttpxClient() as client:
        async with DefaultAsyncHttpxClient() as async_client:
            yield ChatOpenAI(
                model=MODEL,
                base_url=served.url,
                api_key="none",
                max_retries=0,
                http_client=client,
                http_async_client=async_client,
            )


def prompted(prompt: str) -> dict[str, list[tuple[str, str]]]:
    return {"messages": [("user", prompt)]}


async def test_an_agent_runs_its_tools_and_answers(served: Served, model: ChatOpenAI) -> None:
    tools = Tools([])
    agent = create_agent(model, [tools.get_weather, tools.get_time])
    messages: list[BaseMessage] = agent.invoke(prompted(TRIP))["messages"]
    check_trip_ended(served, tools, messages[-1].content)


async def test_an_agent_streams_its_answer(served: Served, model: ChatOpenAI) -> None:
    tools = Tools([])
    agent = create_agent(model, [tools.get_weather, tools.get_time])
    pieces: list[str] = []
    async for message, _ in agent.astream(prompted(TRIP), stream_mode="messages"):
        if isinstance(message, AIMessageChunk) and isinstance(message.content, str):
            pieces.append(message.content)
    assert "".join(pieces).endswith(TRIP_ANSWER)
    assert sum(map(bool, pieces)) > 2, "the answer came in one piece"
    check_trip_ended(served, tools, TRIP_ANSWER)


async def test_a_graph_goes_from_the_model_to_the_tools_and_back(
    served: Served, model: ChatOpenAI
) -> None:
    tools = Tools([])
    offered = [tools.get_weather, tools.get_time]
    bound = model.bind_tools(offered)

    def think(state: MessagesState) -> dict[str, list[AIMessage]]:
        return {"messages": [bound.invoke(state["messages"])]}

    graph = StateGraph(MessagesState)
    graph.add_node("think", think)
    graph.add_node("tools", ToolNode(offered))
    graph.add_edge(START, "think")
    graph.add_conditional_edges("think", tools_condition)
    graph.add_edge("tools", "think")
    messages: list[BaseMessage] = graph.compile().invoke(prompted(TRIP))["messages"]
    check_trip_ended(served, tools, messages[-1].content)


async def test_structured_output_is_parsed_into_a_class(served: Served, model: ChatOpenAI) -> None:
    assert model.with_structured_output(Fact).invoke(FACTS) == PARIS
    called = model.with_structured_output(Fact, method="function_calling")
    assert called.invoke("File it. [[call Fact]]") == PARIS
    assert served.generations() == 2


async def test_an_agent_returns_structured_output_by_a_tool_call(
    served: Served, model: ChatOpenAI
) -> None:
    tools = Tools([])
    agent = create_agent(
        model, [tools.get_weather], response_format=ToolStrategy(Fact, handle_errors=False)
    )
    assert agent.invoke(prompted("File it. [[call Fact]]"))["structured_response"] == PARIS
    assert served.generations() == 1
