"""Replays of recorded requests with operator tools: no tool runs, and the outcome is the same."""

from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest
from msgspec import structs

from proxy.api.app import ServerOptions
from proxy.conversation.json import JsonObject, JsonValue
from proxy.guardrails.offer import Mode
from proxy.inference.plan import Policy
from proxy.mcp.execution import ToolOffer
from proxy.mcp.hosting import ToolHosting
from proxy.mcp.specification import LOST, ToolCallResult
from proxy.observability.observers import Observers
from proxy.observability.recording import (
    RecordedExchange,
    RecordedOutcome,
    RecordedRun,
    Recording,
    read_recording,
)
from proxy.observability.replay import Nudge, before_after, replay, replay_file
from proxy.profiles.files import load_profiles
from proxy.tools.executor import Status
from tests.fakes import sse
from tests.fakes.running_proxy import TOOLS, RunningProxy, request, temper
from tests.fakes.scripted_backend import Script, refuses
from tests.fakes.sse import calls, says
from tests.fakes.tool_servers import FakeSource, served

OFFERED = (served("find", "search"), served("open", "search"))
ASKS: JsonObject = {"type": "mcp", "server_label": "search"}
ANSWERS = {
    "find": ToolCallResult("21 degrees"),
    "open": ToolCallResult(LOST, Status.LOST, "connection_closed"),
}
FIND, OPEN, SAYS = calls("find", '{"q": 1}'), calls("open", "{}"), says("It is ", "21 degrees.")
OWN = calls("get_weather", '{"city": "Paris"}')
RESCUED = says('<tool_call>{"name": "find", "arguments": {"q": 2}}</tool_call>')
BOTH = (
    sse.START
    + sse.call_delta("find", "{}", call_id="a")
    + sse.call_delta("get_weather", '{"city": "Paris"}', index=1, call_id="b")
    + sse.end("tool_calls")
)
TOO_LONG: JsonObject = {
    "code": 400,
    "message": "the request exceeds the available context size",
    "type": "exceed_context_size_error",
    "n_prompt_tokens": 9_000,
    "n_ctx": 3_000,
}
LONG: list[JsonValue] = [
    {"role": role, "content": f"{number} " * 300}
    for number in range(12)
    for role in ("user", "assistant")
]

SCRIPTS: Mapping[str, tuple[Script | bytes, ...]] = {
    "an answer without a call": (SAYS,),
    "one round": (FIND, SAYS),
    "two rounds, one of them failed": (FIND, OPEN, SAYS),
    "a call that is rescued": (RESCUED, SAYS),
    "a call that does not exist": (calls("seek", "{}"), FIND, SAYS),
    "rounds that fail": (OPEN, OPEN, OPEN, SAYS),
    "the client's own call": (OWN,),
    "mixed calls": (BOTH, OWN),
    "mixed calls again": (BOTH, BOTH),
    "as many rounds as there may be": (FIND, calls("find", '{"q": 2}'), SAYS),
    "a failure behind a round": (FIND, refuses(500, {"message": "no"})),
}


def hosted(**others: JsonValue) -> JsonObject:
    return request(tools=[TOOLS[0], ASKS], **others)


async def record_request(
    path: Path,
    scripts: tuple[Script | bytes, ...],
    body: JsonObject,
    *,
    stream: bool,
    serving: ServerOptions | None = None,
) -> tuple[RunningProxy, RecordedExchange]:
    """Record a request; return the proxy, and the exchange that was read from the file."""
    recording = Recording(path, 10_000_000, ("operators-key",))
    source = FakeSource({"search": OFFERED}, ANSWERS)
    tools = ToolHosting(ToolOffer(source), rounds=2)
    observers = Observers((), recording=recording)
    async with temper(*scripts, serving=serving, observers=observers, tools=tools) as proxy:
        await proxy.ask(body, stream=stream)
    recording.close()
    (exchange,) = read_recording(path)
    return proxy, exchange


@pytest.mark.parametrize("name", SCRIPTS)
async def test_a_replay_of_a_recorded_tool_run_has_the_recorded_outcome(
    *, name: str, stream: bool, tmp_path: Path
) -> None:
    path = tmp_path / "recording.jsonl"
    _, exchange = await record_request(path, SCRIPTS[name], hosted(), stream=stream)
    assert isinstance(exchange.run, RecordedRun)
    assert sum(tool_round.generations for tool_round in exchange.run.rounds) == len(
        exchange.generations
    )
    (replayed,) = replay_file(path, None)
    assert (replayed.status, replayed.changes) in (("same", ()), ("incomplete", ()))
    assert (replayed.status == "incomplete") == (name == "a failure behind a round")


async def test_a_replay_of_a_tool_run_without_guardrails_has_the_recorded_outcome(
    *, stream: bool, tmp_path: Path
) -> None:
    path = tmp_path / "recording.jsonl"
    serving = ServerOptions(policy=Policy(mode=Mode.OFF))
    await record_request(path, (FIND, SAYS), hosted(), stream=stream, serving=serving)
    (replayed,) = replay_file(path, None)
    assert (replayed.status, replayed.changes) == ("same", ())


async def test_a_replay_of_a_tool_run_with_an_overflow_has_the_recorded_outcome(
    *, stream: bool, tmp_path: Path
) -> None:
    path = tmp_path / "recording.jsonl"
    scripts = (FIND, refuses(400, TOO_LONG), SAYS)
    question: JsonValue = {"role": "user", "content": "How warm is it?"}
    body = hosted(messages=[*LONG, question])
    proxy, exchange = await record_request(path, scripts, body, stream=stream)
    assert (len(proxy.backend.upstream_requests), len(exchange.generations)) == (3, 3)
    (replayed,) = replay_file(path, None)
    assert (replayed.status, replayed.changes) == ("same", ())


async def test_recording_contains_tools_and_call_outcomes(tmp_path: Path) -> None:
    _, exchange = await record_request(
        tmp_path / "recording.jsonl", (FIND, OPEN, SAYS), hosted(), stream=False
    )
    assert exchange.run is not None
    assert exchange.run.owned == ("find", "open")
    assert [tool_round.outcomes for tool_round in exchange.run.rounds] == [
        (RecordedOutcome(name="find", arguments='{"q": 1}', text="21 degrees", status="done"),),
        (RecordedOutcome(name="open", arguments="{}", text=LOST, status="lost"),),
        (),
    ]
    tools = exchange.request["tools"]
    assert isinstance(tools, list)
    assert [tool["function"]["name"] for tool in tools] == ["get_weather", "find", "open"]


async def test_replay_ends_if_its_calls_differ_from_the_recorded_calls(tmp_path: Path) -> None:
    _, exchange = await record_request(
        tmp_path / "recording.jsonl", (FIND, SAYS), hosted(), stream=False
    )
    assert exchange.run is not None
    first, last = exchange.run.rounds
    (outcome,) = first.outcomes
    other = structs.replace(outcome, arguments='{"q": 9}')
    rounds = (structs.replace(first, outcomes=(other,)), last)
    run = structs.replace(exchange.run, rounds=rounds)
    changed = structs.replace(exchange, run=run)
    changes = {change.what: change.now for change in replay(changed, load_profiles(None)).changes}
    assert changes["outcome"] == "calls other tools"


async def test_dashboard_shows_tool_results_between_generations(tmp_path: Path) -> None:
    _, exchange = await record_request(
        tmp_path / "recording.jsonl",
        (says("I'll look ", "that up now."), RESCUED, SAYS),
        hosted(),
        stream=False,
    )
    shown = before_after(msgspec.json.encode(exchange) + b"\n", load_profiles(None))
    first, second, third = shown.generations
    assert [message.role for message in first.nudge] == ["user"]
    assert second.nudge == [Nudge("tool", "21 degrees")]
    assert (third.nudge, shown.calls) == ([], ())
    assert shown.text.endswith("It is 21 degrees.")
    assert first.text == "I'll look that up now."
