import asyncio
from itertools import count

import pytest
from msgspec.structs import replace

from proxy.conversation.json import JsonObject
from proxy.conversation.tools import RequestedTools, ToolCall
from proxy.errors import InvalidRequest, ToolServerUnavailable, ToolsNotAllowed
from proxy.mcp.confirmations import Decision
from proxy.mcp.definitions import ServedTool
from proxy.mcp.execution import OperatorTools, ToolOffer
from proxy.mcp.specification import CallLimits, ToolCallResult
from proxy.observability.record import ToolRecord
from proxy.tools.executor import Outcome, RoundContext, Status
from tests.fakes.tool_servers import FakeSource, served

TOOLS = (served("get"), served("p_put", upstream_name="put"), served("hang"))
ANSWERS = {
    "get": ToolCallResult("got"),
    "put": ToolCallResult("Error: no", Status.FAILED, "tool_error"),
}


def calls(*names: str, arguments: str = '{"a":1}') -> list[ToolCall]:
    return [ToolCall(f"{index}", name, arguments) for index, name in enumerate(names)]


def texts_of(outcomes: tuple[Outcome, ...]) -> list[tuple[str, str]]:
    return [(outcome.call.name, outcome.text) for outcome in outcomes]


async def test_execute_returns_outcomes_in_the_order_of_the_calls() -> None:
    source = FakeSource({"fake": TOOLS}, ANSWERS)
    tools = OperatorTools(source, TOOLS)
    assert [spec.name for spec in tools.specs()] == ["get", "p_put", "hang"]
    running = asyncio.create_task(tools.execute(calls("hang", "p_put"), RoundContext()))
    while source.running != 1 or len(source.calls) != 2:  # noqa: ASYNC110 - there is no event to wait for
        await asyncio.sleep(0)
    source.released.set()
    assert texts_of(await running) == [("hang", "hang is done"), ("p_put", "Error: no")]
    assert source.calls[1][:2] == ("put", {"a": 1})


async def test_at_most_two_calls_run_concurrently_if_the_limit_is_two() -> None:
    source = FakeSource({"fake": TOOLS}, ANSWERS)
    tools = OperatorTools(source, TOOLS, CallLimits(parallel=2))
    running = asyncio.create_task(tools.execute(calls(*["hang"] * 7), RoundContext()))
    while source.running != 2:  # noqa: ASYNC110 - there is no event to wait for
        await asyncio.sleep(0)
    source.released.set()
    assert len(await running) == 7
    assert source.most == 2


async def test_the_smaller_of_two_limits_of_result_characters_is_used() -> None:
    source = FakeSource({"fake": TOOLS}, ANSWERS)
    tools = OperatorTools(source, TOOLS, CallLimits(result_chars=500), lambda call: {"i": call.id})
    await tools.execute(calls("get"), RoundContext(result_chars=100))
    await tools.execute(calls("get"), RoundContext(result_chars=900))
    assert [limits.result_chars for _, _, limits, _ in source.calls] == [100, 500]
    assert source.calls[0][3] == {"i": "0"}


@pytest.mark.parametrize("arguments", ["[]", "{", "1"])
async def test_a_call_whose_arguments_are_not_an_object_is_not_sent_to_a_server(
    arguments: str,
) -> None:
    source = FakeSource({"fake": TOOLS}, ANSWERS)
    (outcome,) = await OperatorTools(source, TOOLS).execute(
        calls("get", arguments=arguments), RoundContext()
    )
    assert (outcome.status, "not a JSON object" in outcome.text) == (Status.FAILED, True)
    assert source.calls == []


async def test_each_finished_call_is_reported_with_its_duration_and_error() -> None:
    records: list[ToolRecord] = []
    ticks = count()
    source = FakeSource({"fake": TOOLS}, ANSWERS)
    clock = lambda: float(next(ticks))  # noqa: E731 - shorter than a function
    tools = OperatorTools(source, TOOLS, notice=records.append, clock=clock)
    (outcome,) = await tools.execute(calls("p_put"), RoundContext())
    (called,) = records
    assert outcome.seconds == called.seconds == 1.0
    assert called == ToolRecord(
        "fake", "put", "0", 1, 0.0, 1.0, "failed", "tool_error", "pipe", "version of fake"
    )


async def test_a_finished_call_is_reported_while_another_call_is_running() -> None:
    finished: list[Outcome] = []
    done = asyncio.Event()

    def note(outcome: Outcome) -> None:
        finished.append(outcome)
        done.set()

    tools = OperatorTools(FakeSource({"fake": TOOLS}, ANSWERS), TOOLS)
    context = RoundContext(finished=note)
    running = asyncio.create_task(tools.execute(calls("hang", "get"), context))
    await done.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert [record.call.name for record in finished] == ["get"]


async def test_canceling_the_execution_cancels_its_calls() -> None:
    records: list[ToolRecord] = []
    source = FakeSource({"fake": TOOLS}, ANSWERS)
    tools = OperatorTools(source, TOOLS, notice=records.append)
    running = asyncio.create_task(tools.execute(calls("hang", "hang"), RoundContext()))
    while source.running != 2:  # noqa: ASYNC110 - there is no event to wait for
        await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert source.running == 0
    assert {record.status for record in records} == {"cancelled"}


async def test_an_approved_call_is_run_and_the_time_until_the_approval_is_recorded() -> None:
    records: list[ToolRecord] = []
    questions: list[tuple[str, JsonObject]] = []
    ticks = count()

    async def confirm(tool: ServedTool, call: ToolCall, arguments: JsonObject) -> Decision:
        questions.append((f"{tool.upstream_name} {call.id}", arguments))
        return Decision.ALLOWED

    source = FakeSource({"fake": TOOLS}, ANSWERS)
    offered = (replace(TOOLS[0], needs_approval=True), TOOLS[1])
    clock = lambda: float(next(ticks))  # noqa: E731 - shorter than a function
    tools = OperatorTools(source, offered, notice=records.append, clock=clock, confirm=confirm)
    (outcome,) = await tools.execute(calls("get"), RoundContext())
    assert (outcome.text, outcome.seconds) == ("got", 1.0)
    assert questions == [("get 0", {"a": 1})]
    assert (records[0].begun, records[0].seconds, records[0].waited) == (1.0, 1.0, 1.0)
    await tools.execute(calls("p_put"), RoundContext())
    assert (len(questions), records[1].waited) == (1, 0.0)


@pytest.mark.parametrize("decision", [Decision.REFUSED, Decision.UNANSWERED])
async def test_a_refused_or_unanswered_call_is_not_sent_to_a_server(decision: Decision) -> None:
    records: list[ToolRecord] = []

    async def confirm(_tool: ServedTool, _call: ToolCall, _arguments: JsonObject) -> Decision:
        return decision

    source = FakeSource({"fake": TOOLS}, ANSWERS)
    offered = (replace(TOOLS[0], needs_approval=True),)
    tools = OperatorTools(source, offered, notice=records.append, confirm=confirm)
    (outcome,) = await tools.execute(calls("get"), RoundContext())
    assert decision.refusal is not None
    assert (outcome.text, outcome.status) == (decision.refusal.text, Status.REFUSED)
    assert (records[0].status, records[0].error, records[0].seconds) == (
        "refused",
        decision.value,
        0.0,
    )
    assert source.calls == []


async def test_without_an_approval_function_a_call_that_needs_approval_is_refused() -> None:
    source = FakeSource({"fake": TOOLS}, ANSWERS)
    tools = OperatorTools(source, (replace(TOOLS[0], needs_approval=True),))
    (outcome,) = await tools.execute(calls("get"), RoundContext())
    assert (outcome.status, source.calls) == (Status.REFUSED, [])


async def test_no_approval_is_requested_for_a_call_whose_arguments_are_not_an_object() -> None:
    async def confirm(_tool: ServedTool, _call: ToolCall, _arguments: JsonObject) -> Decision:
        raise AssertionError

    source = FakeSource({"fake": TOOLS}, ANSWERS)
    tools = OperatorTools(source, (replace(TOOLS[0], needs_approval=True),), confirm=confirm)
    (outcome,) = await tools.execute(calls("get", arguments="[]"), RoundContext())
    assert (outcome.status, source.calls) == (Status.FAILED, [])


SEARCH = (served("find", "search"), served("s_open", "search", "open"))
FILES = (served("read", "files"), served("find", "files"))
SOURCE = FakeSource({"search": SEARCH, "files": FILES, "late": None, "empty": ()})
OWN = (served("write", "").tool,)
ON_REQUEST = ToolOffer(SOURCE)
TOOLLESS, ALWAYS = ToolOffer(SOURCE, "toolless"), ToolOffer(SOURCE, "always")
HOSTED = ToolOffer(
    SOURCE,
    hosted={"web_search": ("search", "find"), "slow": ("late", "x"), "new": ("unstarted", "x")},
)


def request_server(server: str, *allowed: str) -> RequestedTools:
    return RequestedTools("tools.0", server, allowed or None)


def names(
    offer: ToolOffer, *wanted: RequestedTools, owner: str = "", has_client_tools: bool = True
) -> list[str]:
    offered = offer.select_tools(OWN if has_client_tools else (), wanted, owner)
    return [tool.tool.name for tool in offered]


def request_hosted(kind: str) -> RequestedTools:
    return RequestedTools("tools.0", kind=kind)


@pytest.mark.parametrize(
    ("offer", "requests", "has_client_tools", "offered"),
    [
        (ON_REQUEST, [], True, []),
        (ON_REQUEST, [], False, []),
        (ON_REQUEST, [request_server("search")], True, ["find", "s_open"]),
        (
            ON_REQUEST,
            [request_server("files", "read"), request_server("search", "open")],
            True,
            ["s_open", "read"],
        ),
        (ON_REQUEST, [request_server("search", "s_open")], True, ["s_open"]),
        (TOOLLESS, [], False, ["find", "s_open", "read"]),
        (TOOLLESS, [], True, []),
        (TOOLLESS, [request_server("files", "read")], False, ["read"]),
        (ALWAYS, [], True, ["find", "s_open", "read"]),
        (ALWAYS, [request_server("search")], True, ["find", "s_open", "read"]),
        (ALWAYS, [request_server("files")], True, ["s_open", "read", "find"]),
        (HOSTED, [request_hosted("web_search")], True, ["find"]),
        (HOSTED, [request_hosted("slow")], True, []),
        (HOSTED, [request_hosted("new")], True, []),
    ],
)
def test_the_offered_tools_depend_on_the_setting_offer_and_on_the_request(
    *, offer: ToolOffer, requests: list[RequestedTools], has_client_tools: bool, offered: list[str]
) -> None:
    assert names(offer, *requests, has_client_tools=has_client_tools) == offered


def test_of_two_tools_with_the_same_name_the_tool_of_the_requested_server_is_offered() -> None:
    for offer in (ON_REQUEST, ALWAYS):
        offered = offer.select_tools((), [request_server("files")], "")
        assert FILES[1] in offered
        assert SEARCH[0] not in offered
    tools = ON_REQUEST.select_tools(
        (), [request_server("files", "find"), request_server("search", "find")], ""
    )
    assert tools == (SEARCH[0],)


def test_a_server_tool_with_the_name_of_a_client_tool_is_not_offered() -> None:
    offered = ON_REQUEST.select_tools([served("find", "").tool], [request_server("search")], "")
    assert [tool.tool.name for tool in offered] == ["s_open"]


@pytest.mark.parametrize(
    ("requests", "param", "message"),
    [
        (request_server("other"), "tools.0.server_label", "Available: search, files"),
        (request_server("empty"), "tools.0.server_label", "No tool of the tool server"),
        (request_server("search", "find", "gone"), "tools.0.allowed_tools.1", "has no tool 'gone'"),
    ],
)
def test_a_request_for_an_unknown_tool_server_or_tool_is_refused(
    requests: RequestedTools, param: str, message: str
) -> None:
    with pytest.raises(InvalidRequest, match=message) as raised:
        names(ON_REQUEST, requests)
    assert raised.value.param == param


def test_a_request_that_names_an_unreachable_tool_server_is_refused() -> None:
    with pytest.raises(ToolServerUnavailable, match="'late' is not available"):
        names(ON_REQUEST, request_server("late"))
    assert names(ALWAYS) == ["find", "s_open", "read"]


def test_only_the_configured_owners_of_keys_may_use_tools() -> None:
    offer = ToolOffer(SOURCE, "always", frozenset({"me"}), HOSTED.hosted)
    assert names(offer, owner="me") == ["find", "s_open", "read"]
    assert names(offer, owner="you") == []
    assert names(offer, RequestedTools("tools.0", kind="web_search"), owner="you") == []
    with pytest.raises(ToolsNotAllowed):
        names(offer, request_server("search"), owner="you")
