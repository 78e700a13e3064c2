"""With many tools, the prompt has only their summaries, and Temper answers `find_tools` itself."""

from collections.abc import Sequence
from itertools import pairwise

import pytest

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.mcp.built_in import NoToolServers
from proxy.mcp.execution import ToolOffer
from proxy.mcp.hosting import ToolHosting
from tests.fakes import sse
from tests.fakes.running_proxy import RunningProxy, temper
from tests.fakes.sse import calls, says

FIND = calls("find_tools", '{"query": "tickets of a train"}')
BOOK = calls("tool_7", '{"city": "Paris"}')
QUESTION: list[JsonValue] = [{"role": "user", "content": "A train ticket to Paris, please."}]


def tool(number: int, words: str = "Do work", name: str = "") -> JsonObject:
    description = f"{words}. " + "This tool has a long description with many details. " * 9
    city: JsonObject = {"type": "string", "description": "The name of a city in English"}
    parameters: JsonObject = {
        "type": "object",
        "properties": {"city": city},
        "required": ["city"],
    }
    function: JsonObject = {
        "name": name or f"tool_{number}",
        "description": description,
        "parameters": parameters,
    }
    return {"type": "function", "function": function}


MANY = [tool(number, "Buy train tickets" if number == 7 else "Do work") for number in range(60)]


def hosting(at_least: int = 20) -> ToolHosting:
    return ToolHosting(ToolOffer(NoToolServers()), summarized_from=at_least)


def asking(
    messages: Sequence[JsonValue] = QUESTION,
    tools: Sequence[JsonValue] = MANY,
    **others: JsonValue,
) -> JsonObject:
    return {"model": "m", "messages": [*messages], "tools": [*tools], **others}


def sent(proxy: RunningProxy, number: int) -> list[JsonValue]:
    return [json.parse(message) for message in proxy.backend.upstream_requests[number].messages]


def sent_tools(proxy: RunningProxy, number: int = 0) -> list[JsonObject]:
    tools = proxy.backend.upstream_requests[number].fields["tools"]
    assert isinstance(tools, list)
    return [entry["function"] for entry in tools]  # type: ignore[misc, index, call-overload]


async def test_a_call_of_find_tools_gives_the_definition_and_is_not_returned_to_the_client(
    *, stream: bool
) -> None:
    async with temper(FIND, BOOK, tools=hosting()) as proxy:
        answer = await proxy.ask(asking(), stream=stream)
        first, second = proxy.backend.upstream_requests
        _, _, result = sent(proxy, 1)
        tools = sent_tools(proxy)
    assert (answer.called, answer.text or "") == ([("tool_7", {"city": "Paris"})], "")
    assert answer.report["tools"] == "temper=1"
    assert isinstance(result, dict)
    assert str(result["content"]).startswith("tool_7: Buy train tickets. ")
    assert '"required"' in str(result["content"])
    assert first.tools == second.tools
    assert tools[7] == {
        "name": "tool_7",
        "description": "Buy train tickets",
        "parameters": {"type": "object"},
    }
    assert [entry["name"] for entry in tools] == [*(f"tool_{n}" for n in range(60)), "find_tools"]
    assert len(json.dump([*tools])) < 0.2 * len(json.dump([*MANY]))


async def test_the_next_prompt_of_a_conversation_begins_with_the_previous_prompt(
    *, stream: bool
) -> None:
    async with temper(FIND, BOOK, says("Booked."), says("Bye."), tools=hosting()) as proxy:
        client = [*QUESTION]
        answer = await proxy.ask(asking(client), stream=stream)
        ids = [call["id"] for call in answer.calls]
        function: JsonObject = {"name": "tool_7", "arguments": '{"city": "Paris"}'}
        called: JsonObject = {"id": ids[0], "type": "function", "function": function}
        client += [
            {"role": "assistant", "content": None, "tool_calls": [called]},
            {"role": "tool", "tool_call_id": ids[0], "content": "done"},
        ]
        await proxy.ask(asking(client), stream=stream)
        client += [{"role": "assistant", "content": "Booked."}, {"role": "user", "content": "Bye"}]
        await proxy.ask(asking(client), stream=stream)
        requests = proxy.backend.upstream_requests
    for earlier, later in pairwise(requests):
        assert later.messages[: len(earlier.messages)] == earlier.messages
        assert later.tools == earlier.tools
    assert [len(request.messages) for request in requests] == [1, 3, 5, 7]


async def test_a_call_without_find_tools_is_checked_against_the_full_schema(
    *, stream: bool
) -> None:
    wrong = calls("tool_7", '{"town": "Paris", "n": 1}')
    async with temper(wrong, BOOK, tools=hosting()) as proxy:
        answer = await proxy.ask(asking(), stream=stream)
        nudge = str(sent(proxy, 1)[-1])
    assert answer.called == [("tool_7", {"city": "Paris"})]
    assert "city" in nudge


async def test_a_call_of_find_tools_does_not_count_as_a_required_call(*, stream: bool) -> None:
    async with temper(FIND, says("I will."), BOOK, tools=hosting()) as proxy:
        answer = await proxy.ask(asking(tool_choice="required"), stream=stream)
    assert answer.called == [("tool_7", {"city": "Paris"})]


async def test_client_call_next_to_find_tools_is_returned_to_the_client(*, stream: bool) -> None:
    mixed = (
        sse.START
        + sse.call_delta("find_tools", '{"query": "train"}', call_id="ours")
        + sse.call_delta("tool_7", '{"city": "Paris"}', index=1, call_id="theirs")
        + sse.end("tool_calls")
    )
    async with temper(mixed, mixed, tools=hosting()) as proxy:
        answer = await proxy.ask(asking(), stream=stream)
    assert answer.called == [("tool_7", {"city": "Paris"})]


@pytest.mark.parametrize("query", ["", "火车", "zzz"])
async def test_a_find_tools_query_without_match_returns_a_note_to_the_model(query: str) -> None:
    find = calls("find_tools", json.dump_text({"query": query}))
    async with temper(find, says("Sorry."), tools=hosting()) as proxy:
        answer = await proxy.ask(asking())
        result = str(sent(proxy, 1)[-1])
    assert answer.text == "Sorry."
    assert "No tool matches" in result


async def test_client_tool_named_find_tools_keeps_its_name(*, stream: bool) -> None:
    tools = [*MANY, tool(0, "Find", "find_tools")]
    call = calls("find_tools", '{"city": "Paris"}')
    async with temper(call, tools=hosting()) as proxy:
        answer = await proxy.ask(asking(tools=tools), stream=stream)
        names = [entry["name"] for entry in sent_tools(proxy)]
    assert answer.called == [("find_tools", {"city": "Paris"})]
    assert names[-1] == "temper_find_tools"


async def test_few_tools_and_requests_without_guardrails_are_unchanged(*, stream: bool) -> None:
    async with temper(BOOK, BOOK, tools=hosting(61)) as proxy:
        await proxy.ask(asking(), stream=stream)
        assert sent_tools(proxy) == [entry["function"] for entry in MANY]
    async with temper(BOOK, tools=hosting()) as proxy:
        await proxy.ask(asking(), stream=stream, headers={"x-temper-guardrails": "off"})
        assert sent_tools(proxy) == [entry["function"] for entry in MANY]
