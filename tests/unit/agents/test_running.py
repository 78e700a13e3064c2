import asyncio
from collections.abc import Sequence

import pytest
from pydantic import TypeAdapter

from proxy.agents.agent import Agent
from proxy.agents.model import Model
from proxy.agents.running import JoinedTools, Task
from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.conversation.messages import Message, assistant_message, tool_result, user_message
from proxy.conversation.tools import ToolCall, ToolUse
from proxy.conversation.workflows import Workflow
from proxy.errors import BackendTimedOut, ContextOverflow, InvalidRequest
from proxy.tools.execution import Limits
from proxy.tools.executor import RoundContext, Status
from proxy.tools.function import tool
from proxy.tools.run import Stop
from proxy.tools.toolset import Toolset
from proxy.tools.transcript import Conversation
from temper import BackendFailed
from tests.fakes.agents import WEATHER_CALLED, get_weather, scripted
from tests.fakes.playbook import CLOCK, make_tool
from tests.fakes.rounds import called
from tests.fakes.scripted_backend import Ending, Script, refuses
from tests.fakes.sse import START, call_delta, end, says, text
from tests.fakes.turns import ScriptedTools

FIRST = (make_tool("add", {}), make_tool("show", {}))
SECOND = (make_tool("open_file", {}),)


def test_each_call_goes_to_its_toolset_and_results_keep_the_order_of_calls() -> None:
    first, other = ScriptedTools(FIRST, ["one"]), ScriptedTools(SECOND, ["other"])
    joined = JoinedTools([first, other])
    assert joined.specs() == (*FIRST, *SECOND)
    calls = [called(1), called(2, "open_file"), called(3, "show")]
    outcomes = asyncio.run(joined.execute(calls, RoundContext(7)))
    assert [outcome.call for outcome in outcomes] == calls
    assert [outcome.text for outcome in outcomes] == ["one", "other", "one"]
    assert first.contexts == other.contexts == [RoundContext(7)]


def test_calls_of_a_toolset_are_executed_in_one_batch() -> None:
    tools = ScriptedTools(FIRST, ["one"])
    outcomes = asyncio.run(
        JoinedTools([tools]).execute([called(1), called(2, "show")], RoundContext())
    )
    assert len(outcomes) == 2
    assert len(tools.contexts) == 1


def test_two_tools_with_the_same_name_are_refused() -> None:
    with pytest.raises(ValueError, match="'add'"):
        JoinedTools([ScriptedTools(FIRST, []), ScriptedTools(FIRST, [])])


@pytest.mark.parametrize("reason", [KeyError("a hook's own"), SystemExit(3)])
def test_an_exception_raised_by_an_approval_hook_reaches_the_caller_while_other_calls_run(
    reason: BaseException,
) -> None:
    def ending() -> None:
        raise reason

    async def approve(_: ToolCall) -> bool:
        raise reason

    limits, approved = Limits(), tool(needs_approval=True)(ending)
    joined = JoinedTools(
        [Toolset([approved]).bound(None, limits, approve), ScriptedTools(FIRST, ["one"])]
    )

    async def run() -> str:
        with pytest.raises(type(reason)) as raised:
            await joined.execute([called(1, "ending"), called(2)], RoundContext())
        assert raised.value is reason
        await asyncio.sleep(0)
        return "the loop goes on"

    assert asyncio.run(run()) == "the loop goes on"


async def test_sequential_tools_keep_their_order_across_toolsets() -> None:
    done: list[str] = []

    @tool(parallel=False)
    async def slow() -> None:
        await asyncio.sleep(0)
        done.append("slow")

    @tool
    async def quick() -> None:
        done.append("quick")

    two_calls = START + call_delta("slow", "{}") + call_delta("quick", "{}", index=1)
    async with scripted(two_calls + end("tool_calls"), says("Fine.")) as (model, _):
        await Agent(model, [Toolset([slow]), Toolset([quick])]).run("Do both.")
    assert done == ["slow", "quick"]


async def test_a_finished_call_keeps_its_result_when_another_is_canceled() -> None:
    cancel = asyncio.Event()

    @tool
    async def book() -> str:
        return "It is booked."

    @tool
    async def wait_long() -> None:
        cancel.set()
        await asyncio.Event().wait()

    two_calls = START + call_delta("book", "{}") + call_delta("wait_long", "{}", index=1)
    async with scripted(two_calls + end("tool_calls")) as (model, _):
        result = await Agent(model, [book, wait_long]).run("Do both.", cancel=cancel)
    assert result.stop is Stop.CANCELLED
    booked, waited = result.rounds[0].outcomes
    assert (booked.text, booked.status) == ("It is booked.", Status.DONE)
    assert (waited.text[:16], waited.status) == ("Error: cancelled", Status.CANCELLED)


HISTORY = (
    user_message("Hi"),
    assistant_message("", (called(1),)),
    tool_result("call_1", "gone", failed=True),
)


def create_task(messages: Sequence[Message] = (), **changed: object) -> Task[object]:
    return Task(
        model=Model("http://127.0.0.1:9", name="tiny"),
        tools=JoinedTools([ScriptedTools((CLOCK,), [])]),
        prompt=user_message("And now?"),
        conversation=Conversation(messages),
        **changed,  # type: ignore[arg-type]
    )


def test_earlier_messages_are_sent_with_all_their_fields() -> None:
    request = create_task(HISTORY, instructions="Be brief.").request()
    system, *messages = request.messages
    assert (system.role, system.text) == ("system", "Be brief.")
    assert tuple(messages) == (*HISTORY, user_message("And now?"))
    assert "messages" not in request.fields


def test_the_request_has_the_model_and_workflow_and_tools_and_parameters_of_the_agent() -> None:
    rules = Workflow(terminal_tools=("get_time",))
    parameters = {"temperature": 0.5, "tool_choice": "required"}
    request = create_task(workflow=rules, parameters=parameters).request()
    assert (request.model, request.workflow) == ("tiny", rules)
    assert [tool.name for tool in request.tools] == ["get_time"]
    assert json.split_array(request.fields["tools"]) == [CLOCK.source]
    assert (request.tool_choice, request.fields["temperature"]) == (ToolUse.REQUIRED, b"0.5")
    assert request.answer_schema is None


def test_the_output_type_becomes_the_schema_of_the_answer() -> None:
    request = create_task(output=TypeAdapter(list[int])).request()
    assert request.answer_schema == {"items": {"type": "integer"}, "type": "array"}


def test_the_error_for_an_invalid_request_parameter_names_it() -> None:
    with pytest.raises(InvalidRequest, match="max_tokens"):
        create_task(parameters={"max_tokens": "many"}).request()


TOO_LONG: JsonObject = {
    "code": 400,
    "message": "the request exceeds the available context size",
    "type": "exceed_context_size_error",
    "n_prompt_tokens": 9_000,
    "n_ctx": 3_000,
}


async def test_an_upstream_request_that_exceeds_the_deadline_is_canceled() -> None:
    never = Script((START, text("It is"), Ending.NEVER))
    backend_settings: dict[str, object] = {"kind": "llama-server", "deadline_seconds": 1}
    async with scripted(never, backend=backend_settings) as (model, backend):
        with pytest.raises(BackendTimedOut, match="did not finish within 1 s"):
            await Agent(model).run("Hi")
        await backend.upstream_requests[0].left.wait()


async def test_a_prompt_that_the_backend_rejects_as_too_long_is_shortened() -> None:
    messages: list[JsonObject] = [
        {"role": role, "content": f"{number} " * 300}
        for number in range(12)
        for role in ("user", "assistant")
    ]
    async with scripted(refuses(400, TOO_LONG), says("Fine.")) as (model, backend):
        conversation = Conversation.of(messages)
        result = await Agent(model, [get_weather]).run("And now?", conversation=conversation)
    assert result.stop is Stop.ANSWERED
    first, second = (len(question.body) for question in backend.upstream_requests)
    assert second < first / 2
    assert len(conversation) == 26


async def test_a_rejected_prompt_that_cannot_be_shortened_is_an_error() -> None:
    async with scripted(*[refuses(400, TOO_LONG)] * 9) as (model, _):
        with pytest.raises((ContextOverflow, BackendFailed)):
            await Agent(model, [get_weather]).run("Hi")


async def test_no_slot_is_occupied_while_a_tool_runs() -> None:
    served: list[int] = []
    async with scripted(WEATHER_CALLED, says("Fine.")) as (model, _):
        queue = model.opened.preparation.services.find("").admission.queue

        def get_weather(city: str) -> str:
            """Report the weather."""
            served.append(queue.served)
            return city

        await Agent(model, [get_weather]).run("How is Paris?")
        assert (served, queue.served) == ([0], 0)


async def test_concurrent_runs_send_one_request_at_a_time_if_there_is_one_slot() -> None:
    one_slot: dict[str, object] = {"kind": "llama-server", "parallel_requests": 1}
    scripts = [WEATHER_CALLED] * 3 + [says("Fine.")] * 3
    async with scripted(*scripts, backend=one_slot) as (model, backend):
        queue = model.opened.preparation.services.find("").admission.queue
        busiest = 0

        async def get_weather(city: str) -> str:
            """Report the weather."""
            nonlocal busiest
            busiest = max(busiest, queue.served)
            return city

        agent = Agent(model, [get_weather])
        results = await asyncio.gather(*(agent.run("How is Paris?") for _ in range(3)))
    assert [result.stop for result in results] == [Stop.ANSWERED] * 3
    assert [len(question.messages) for question in backend.upstream_requests] == [1, 1, 1, 3, 3, 3]
    assert busiest <= 1
