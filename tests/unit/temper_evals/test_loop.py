import httpx
import pytest

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from temper_evals.loop import AgentLoop, Ending, Habits, ModelTarget, ScenarioRun
from temper_evals.scenarios.scenario import RunEnded
from temper_evals.scenarios.suite import FAMILIES
from temper_evals.scenarios.task import PlannedTask
from temper_evals.simulated.profiles import load_profile
from temper_evals.simulated.server import SimulatedServer, serve

SINGLE = FAMILIES["single"](1)
TARGET = ModelTarget("http://model")


class Script:
    """A server that sends these answers in order, and then always the last answer."""

    def __init__(self, *answers: httpx.Response) -> None:
        self._answers = [*answers]
        self.requests: list[JsonObject] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        body = json.parse(request.content)
        assert isinstance(body, dict)
        self.requests.append(body)
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]


def reply(reason: str = "stop", **message: JsonValue) -> httpx.Response:
    choice: JsonObject = {"message": {"role": "assistant", **message}, "finish_reason": reason}
    headers = {"x-temper-outcome": "retried", "x-temper-attempts": "2"}
    usage: JsonObject = {"prompt_tokens": 7}
    return httpx.Response(200, json={"choices": [choice], "usage": usage}, headers=headers)


def call(name: str, arguments: str, call_id: str = "a") -> JsonValue:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


async def run_script(script: Script, habits: Habits, task: PlannedTask = SINGLE) -> ScenarioRun:
    async with httpx.AsyncClient(transport=httpx.MockTransport(script)) as client:
        return await AgentLoop(client, TARGET, habits).run(task, 0, task.world())


WITHOUT_STREAMING = Habits(streams=False)


async def test_errors_of_unknown_tools_and_invalid_arguments_are_returned_to_the_model() -> None:
    calls: JsonValue = [
        call("no_tool", "{}"),
        call(SINGLE.calls[0].name, "{", "b"),
        call(SINGLE.calls[0].name, "{}", "c"),
    ]
    script = Script(reply("tool_calls", content=None, tool_calls=calls), reply(content="Well."))
    run = await run_script(script, WITHOUT_STREAMING)
    results = [str(message["content"]) for message in run.transcript if message["role"] == "tool"]
    assert ["unknown tool" in results[0], "not a JSON" in results[1], "invalid" in results[2]] == [
        True
    ] * 3
    sent = script.requests[1]["messages"]
    assert isinstance(sent, list)
    assert sent[1:] == run.transcript[:4]
    assert (run.ending, run.requests) == (Ending.ANSWERED, 2)
    assert (run.outcomes, run.attempts) == (["retried"] * 2, 4)
    assert run.usages == [{"prompt_tokens": 7}] * 2


async def test_a_tool_that_raises_run_ended_ends_the_run_without_a_further_call() -> None:
    class Counter:
        def call(self, name: str, arguments: JsonObject) -> str:
            if name == "done":
                raise RunEnded
            return "1"

    calls: JsonValue = [call("count", "{}"), call("done", "{}", "b"), call("count", "{}", "c")]
    script = Script(reply("tool_calls", content=None, tool_calls=calls))
    async with httpx.AsyncClient(transport=httpx.MockTransport(script)) as client:
        run = await AgentLoop(client, TARGET, WITHOUT_STREAMING).run(SINGLE, 0, Counter())
    assert (run.ending, run.requests) == (Ending.ANSWERED, 1)
    assert [message.get("tool_call_id") for message in run.transcript[1:]] == ["a"]


async def test_one_user_message_is_sent_after_a_reply_without_a_call_if_urges_is_set() -> None:
    script = Script(reply(content="Well."))
    run = await run_script(script, Habits(urges=True, streams=False))
    assert [message["role"] for message in run.transcript] == ["assistant", "user", "assistant"]
    assert run.ending is Ending.ANSWERED


async def test_tool_choice_required_is_sent_only_in_the_first_request_if_requires_is_set() -> None:
    calls: JsonValue = [call("no_tool", "{}")]
    script = Script(reply("tool_calls", tool_calls=calls), reply(content="Well."))
    await run_script(script, Habits(requires=True, streams=False))
    assert [request.get("tool_choice") for request in script.requests] == ["required", None]


async def test_the_tool_choice_of_a_task_is_sent_only_in_the_first_request() -> None:
    calls: JsonValue = [call("no_tool", "{}")]
    script = Script(reply("tool_calls", tool_calls=calls), reply(content="Well."))
    await run_script(script, WITHOUT_STREAMING, FAMILIES["forced"](0))
    assert [request.get("tool_choice") for request in script.requests] == ["required", None]


async def test_a_run_ends_at_the_request_limit_of_its_task() -> None:
    calls: JsonValue = [call("no_tool", "{}")]
    run = await run_script(Script(reply("tool_calls", tool_calls=calls)), WITHOUT_STREAMING)
    assert (run.ending, run.requests) == (Ending.LIMIT, SINGLE.limit)


@pytest.mark.parametrize(
    ("reason", "ending"),
    [
        ("stop", Ending.ANSWERED),
        ("tool_calls", Ending.ANSWERED),
        ("function_call", Ending.ANSWERED),
        ("length", Ending.CUT_OFF),
        ("content_filter", Ending.CUT_OFF),
        ("other", Ending.CUT_OFF),
    ],
)
async def test_the_problem_of_a_truncated_reply_is_its_finish_reason(
    reason: str, ending: Ending
) -> None:
    run = await run_script(Script(reply(reason, content="Well.")), WITHOUT_STREAMING)
    assert run.ending in (ending, Ending.ANSWERED)
    assert (run.problem == reason) is (ending is Ending.CUT_OFF)


@pytest.mark.parametrize(
    "answer",
    [
        httpx.Response(500, text="oh"),
        httpx.Response(400, json={"error": {"message": "too long"}}),
        httpx.Response(200, text="[]"),
    ],
)
async def test_an_error_response_ends_a_run_as_failed(answer: httpx.Response) -> None:
    run = await run_script(Script(answer), WITHOUT_STREAMING)
    assert run.ending is Ending.FAILED
    assert run.problem


async def test_a_stream_without_a_finish_reason_ends_a_run_as_failed() -> None:
    stream = httpx.Response(200, text='data: {"choices":[{"delta":{"content":"We"}}]}\n\n')
    run = await run_script(Script(stream), Habits())
    assert run.ending is Ending.FAILED
    assert "finish reason" in run.problem


async def test_a_connection_error_ends_a_run_as_failed() -> None:
    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("")

    async with httpx.AsyncClient(transport=httpx.MockTransport(refuse)) as client:
        run = await AgentLoop(client, TARGET, WITHOUT_STREAMING).run(SINGLE, 0, SINGLE.world())
    assert (run.ending, run.problem) == (Ending.FAILED, "ConnectError")


async def test_outcome_attempts_and_times_of_a_stream_are_stored() -> None:
    text = (
        'data: {"choices":[{"delta":{"content":"Well."}}]}\n\n'
        'data: {"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a",'
        '"function":{"name":"x","arguments":"{}"}}]},"finish_reason":"tool_calls"}]}\n\n'
        ": x-temper attempts=3; outcome=repaired\n\ndata: [DONE]\n\n"
    )
    run = await run_script(Script(httpx.Response(200, text=text)), Habits())
    assert run.outcomes[0] == "repaired"
    assert run.attempts == 3 * run.requests
    assert len(run.text_seconds) == len(run.call_seconds) == run.requests


async def test_a_run_with_streaming_has_the_same_result_as_a_run_without() -> None:
    simulated = SimulatedServer(load_profile("p-small"), pace=0.0)
    transport = httpx.ASGITransport(simulated.app())
    async with httpx.AsyncClient(transport=transport) as client:
        for family in ("chain", "parallel", "failing", "trap", "ordered"):
            task = FAMILIES[family](2)
            ends = []
            for streams in (True, False):
                world = task.world()
                loop = AgentLoop(client, TARGET, Habits(streams=streams))
                run = await loop.run(task, 5, world)
                ends.append((world.changes, run.ending, task.judge(world, run.transcript)))
            assert ends[0] == ends[1]


async def test_the_token_count_of_a_run_is_updated_while_it_runs() -> None:
    server, seen = SimulatedServer(load_profile("healthy"), 0.0), ScenarioRun()
    async with serve(server) as url, httpx.AsyncClient() as client:
        run = await AgentLoop(client, ModelTarget(url)).run(SINGLE, 0, SINGLE.world(), seen)
    assert run is seen
    assert run.tokens > run.requests
    seen.usages.append({"completion_tokens": 1000})
    assert run.tokens > 1000
