"""An agent with a scripted server: real settings, request preparation and backend client."""

import asyncio
import signal
import threading
from collections.abc import Iterator

import pytest
from anyio.from_thread import start_blocking_portal
from pydantic import BaseModel, field_validator

from proxy.agents.results import RunEvent
from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.conversation.messages import Message
from proxy.facts import Compacted, LadderEnded, RoundsExceeded
from temper import (
    Added,
    Agent,
    BackendFailed,
    CallDelta,
    Conversation,
    Hooks,
    InvalidRequest,
    Limits,
    Model,
    NoValidReply,
    Prerequisite,
    StepsSkipped,
    Stop,
    ToolContext,
    Toolset,
    ToolsFailed,
    ToolStarted,
    Workflow,
    respond_tool,
    tool,
)
from tests.fakes.agents import (
    BROKEN_CALLED,
    REPORT_CALLED,
    WEATHER_CALLED,
    broken,
    get_weather,
    report,
    scripted,
)
from tests.fakes.scripted_backend import Ending, Script, ScriptedBackend, refuses
from tests.fakes.sockets import listening
from tests.fakes.sse import START, call_delta, calls, end, says, text

FINE = says("It is ", "fine.")
NEVER = Script((START, text("It is"), Ending.NEVER))


async def test_tools_are_called_until_the_model_answers() -> None:
    async with scripted(WEATHER_CALLED, FINE) as (model, backend):
        agent = Agent(model, [get_weather], instructions="Be brief.")
        result = await agent.run("How is Paris?")
    assert (result.stop, result.output) == (Stop.ANSWERED, "It is fine.")
    (outcome,) = result.rounds[0].outcomes
    assert outcome.value == "It is 21 degrees in Paris."
    first, second = backend.upstream_requests
    assert (len(first.messages), len(second.messages)) == (2, 4)
    assert first.messages == second.messages[:2]
    assert first.tools == second.tools
    assert result.usage.requests == 2
    assert result.usage.prompt_tokens == 22
    assert result.raise_for_stop() is result


async def test_a_second_run_sends_the_history_of_its_conversation() -> None:
    conversation = Conversation()
    async with scripted(FINE, WEATHER_CALLED, FINE) as (model, backend):
        agent = Agent(model, [get_weather])
        first = await agent.run("Hi", conversation=conversation)
        second = await agent.run("And Paris?", conversation=conversation)
    assert first.conversation is conversation
    assert [turn.answer for turn in conversation.turns()] == ["It is fine.", "It is fine."]
    assert len(conversation) == len(first.messages) + len(second.messages) == 6
    assert len(backend.upstream_requests[2].messages) == 5


async def test_a_failing_backend_is_an_exception_and_the_conversation_is_unchanged() -> None:
    conversation = Conversation.of([{"role": "user", "content": "Hi"}])
    async with scripted(refuses(400, {"message": "no"})) as (model, _):
        with pytest.raises((BackendFailed, InvalidRequest)):
            await Agent(model, [get_weather]).run("How is Paris?", conversation=conversation)
    assert len(conversation) == 1


async def test_an_error_after_a_tool_round_keeps_that_round_in_the_conversation() -> None:
    conversation = Conversation()
    async with scripted(WEATHER_CALLED, refuses(400, {"message": "no"})) as (model, _):
        with pytest.raises((BackendFailed, InvalidRequest)):
            await Agent(model, [get_weather]).run("How is Paris?", conversation=conversation)
    assert [message.role for message in conversation.history] == ["user", "assistant", "tool"]


async def test_a_terminal_tool_ends_the_run_with_its_return_value() -> None:
    rules = Workflow(required_steps=("get_weather",), terminal_tools=("report",))
    scripts = (REPORT_CALLED, WEATHER_CALLED, says("Prose."), REPORT_CALLED)
    async with scripted(*scripts) as (model, backend):
        agent = Agent(model, [get_weather, report], workflow=rules)
        result = await agent.run("Report on Paris.")
    assert (result.stop, result.output) == (Stop.TERMINAL, "Reported: fine")
    assert len(backend.upstream_requests) == 4
    assert [tool_round.outcomes[0].call.name for tool_round in result.rounds] == [
        "get_weather",
        "report",
    ]


async def test_the_workflow_in_the_settings_applies_to_an_agent_without_a_workflow() -> None:
    rules: dict[str, object] = {"tiny": {"terminal_tools": ["report"]}}
    async with scripted(REPORT_CALLED, workflows=rules) as (model, _):
        model.name = "tiny"
        result = await Agent(model, [report]).run("Report.")
    assert result.stop is Stop.TERMINAL


async def test_a_run_that_never_calls_the_required_step_ends_as_exhausted() -> None:
    rules = Workflow(required_steps=("get_weather",), terminal_tools=("report",))
    async with scripted(*[REPORT_CALLED] * 3) as (model, _):
        result = await Agent(model, [get_weather, report], workflow=rules).run("Report.")
    assert (result.stop, result.defect, result.rounds) == (Stop.EXHAUSTED, "step_missing", ())
    assert any(isinstance(fact, LadderEnded) for fact in result.facts)
    assert result.conversation.messages == ()


class Report(BaseModel):
    city: str
    degrees: int

    @field_validator("degrees")
    @classmethod
    def check_degrees(cls, degrees: int) -> int:
        if degrees > 60:
            raise ValueError("too hot")
        return degrees


async def test_the_output_of_a_run_has_the_requested_type() -> None:
    answer = '{"city": "Paris", "degrees": 21}'
    async with scripted(WEATHER_CALLED, says(answer)) as (model, _):
        result = await Agent(model, [get_weather], output=Report).run("How is Paris?")
    assert result.output == Report(city="Paris", degrees=21)
    assert result.text == answer


async def test_an_answer_that_fails_the_validator_of_the_output_type_ends_the_run() -> None:
    answer = '{"city": "Paris", "degrees": 99}'
    async with scripted(says(answer)) as (model, _):
        result = await Agent(model, output=Report).run("How is Paris?")
    assert (result.stop, result.defect, result.output) == (Stop.EXHAUSTED, "invalid_answer", None)


@pytest.mark.parametrize(
    "wrong",
    ["It is fine in Paris.", "", '{"city": "Paris"}', '{"city": "Paris", "degrees": "hot"}'],
)
async def test_without_tools_an_answer_of_the_wrong_type_is_retried(wrong: str) -> None:
    async with scripted(says(wrong), says('{"city": "Paris", "degrees": 21}')) as (model, backend):
        result = await Agent(model, output=Report).run("How is Paris?")
    assert result.output == Report(city="Paris", degrees=21)
    assert b"wrong form" in backend.upstream_requests[1].messages[-1]
    assert all(
        "response_format" in upstream_request.fields
        for upstream_request in backend.upstream_requests
    )


async def test_three_answers_of_the_wrong_type_exhaust_the_run() -> None:
    async with scripted(says("a"), says("b"), says("c"), says("d")) as (model, backend):
        result = await Agent(model, output=Report).run("How is Paris?")
    assert (result.stop, result.defect, result.output) == (Stop.EXHAUSTED, "invalid_answer", None)
    assert len(backend.upstream_requests) == 3


async def test_after_the_last_allowed_round_an_answer_is_requested() -> None:
    async with scripted(WEATHER_CALLED, FINE) as (model, backend):
        agent = Agent(model, [get_weather], limits=Limits(rounds=1))
        result = await agent.run("How is Paris?")
    assert (result.stop, result.output) == (Stop.ROUNDS, "It is fine.")
    assert RoundsExceeded(1) in result.facts
    assert b"which is the limit" in backend.upstream_requests[1].messages[-1]


async def test_repeatedly_failing_tools_end_the_run() -> None:
    async with scripted(BROKEN_CALLED, BROKEN_CALLED) as (model, _):
        agent = Agent(model, [broken], limits=Limits(failed_rounds=2))
        result = await agent.run("Try.")
    assert (result.stop, result.output, result.text) == (Stop.FAILURES, None, "")
    assert result.rounds[1].outcomes[0].text == "Error: LookupError: nothing there"
    assert len(result.messages) == 5


async def test_tools_read_the_context_of_the_run() -> None:
    @tool
    def whoami(context: ToolContext[str]) -> str:
        return f"{context.deps}, in round {context.round}"

    async with scripted(calls("whoami", "{}"), FINE) as (model, _):
        agent = Agent[str, str](model, [whoami])
        result = await agent.run("Who am I?", deps="Ada")
    assert result.rounds[0].outcomes[0].text == "Ada, in round 1"


async def test_a_tool_can_be_called_by_its_alias() -> None:
    @tool(aliases=("weather",))
    def forecast(city: str) -> str:
        return f"Sun in {city}"

    async with scripted(calls("weather", '{"city": "Oslo"}'), FINE) as (model, _):
        result = await Agent(model, [forecast]).run("How is Oslo?")
    assert result.rounds[0].outcomes[0].text == "Sun in Oslo"


async def test_the_parameters_of_an_agent_are_sent_as_request_fields() -> None:
    async with scripted(FINE) as (model, backend):
        await Agent(model, parameters={"temperature": 0.5, "id_slot": 1}).run("Hi")
    fields = backend.upstream_requests[0].fields
    assert (fields["temperature"], fields["id_slot"]) == (0.5, 1)
    assert "tools" not in fields


async def test_a_prompt_of_content_parts_is_sent_unchanged() -> None:
    parts: list[JsonObject] = [{"type": "text", "text": "Look:"}]
    async with scripted(FINE) as (model, backend):
        await Agent(model).run(parts)
    sent = json.parse(backend.upstream_requests[0].messages[0])
    assert sent == {"role": "user", "content": parts}


async def test_a_canceled_run_keeps_only_complete_tool_rounds_in_the_conversation() -> None:
    conversation, cancel = Conversation(), asyncio.Event()
    async with scripted(WEATHER_CALLED, NEVER) as (model, backend):
        events: list[RunEvent] = []

        def on_chunk(event: RunEvent) -> None:
            events.append(event)
            if getattr(event, "text", "") == "It is":
                cancel.set()

        agent, hooks = Agent(model, [get_weather]), Hooks(on_chunk=on_chunk)
        result = await agent.run("Hi", conversation=conversation, cancel=cancel, hooks=hooks)
        await backend.upstream_requests[1].left.wait()
        queue = model.opened.preparation.services.find("").admission.queue
        assert (queue.served, queue.waiting) == (0, 0)
    assert (result.stop, result.output) == (Stop.CANCELLED, None)
    assert [message.role for message in conversation.history] == ["user", "assistant", "tool"]


async def test_a_run_canceled_before_it_starts_sends_no_request() -> None:
    cancel = asyncio.Event()
    cancel.set()
    async with scripted(FINE) as (model, _):
        result = await Agent(model).run("Hi", cancel=cancel)
    assert result.stop is Stop.CANCELLED
    assert result.messages == ()


async def test_cancellation_during_a_tool_records_that_its_effect_is_unknown() -> None:
    cancel = asyncio.Event()

    async def wait_long() -> str:
        cancel.set()
        await asyncio.Event().wait()
        return "never"

    async with scripted(calls("wait_long", "{}")) as (model, _):
        result = await Agent(model, [wait_long]).run("Wait.", cancel=cancel)
    assert result.stop is Stop.CANCELLED
    assert "not known" in str(result.messages[-1]["content"])


async def test_canceling_the_task_cancels_the_run_and_raises_cancelled_error() -> None:
    conversation = Conversation()
    async with scripted(WEATHER_CALLED, NEVER) as (model, backend):
        work = asyncio.create_task(Agent(model, [get_weather]).run("Hi", conversation=conversation))
        await backend.next_request()
        request = await backend.next_request()
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
        await request.left.wait()
    assert [message.role for message in conversation.history] == ["user", "assistant", "tool"]


async def test_hooks_receive_every_message_and_their_exceptions_end_the_run() -> None:
    conversation: Conversation = Conversation()
    messages: list[Message] = []

    async def on_message(message: Message) -> None:
        messages.append(message)
        if message.role == "tool":
            raise LookupError("enough")

    async with scripted(WEATHER_CALLED) as (model, _):
        with pytest.raises(LookupError, match="enough"):
            await Agent(model, [get_weather]).run(
                "Hi", conversation=conversation, hooks=Hooks(on_message=on_message)
            )
    assert tuple(messages) == conversation.history
    assert [message.role for message in messages] == ["user", "assistant", "tool"]


@pytest.mark.parametrize("is_approved", [True, False])
async def test_a_tool_that_needs_approval_runs_only_after_approval(is_approved: bool) -> None:
    @tool(needs_approval=True)
    def delete(path: str) -> str:
        return f"Deleted {path}"

    async def approve(call: object) -> bool:
        del call
        return is_approved

    async with scripted(calls("delete", '{"path": "a"}'), FINE) as (model, _):
        result = await Agent(model, [delete]).run("Delete a.", hooks=Hooks(approve=approve))
    content = result.rounds[0].outcomes[0].text
    assert content == "Deleted a" if is_approved else "not approved" in content


async def test_a_second_run_on_a_conversation_that_is_in_use_is_refused() -> None:
    conversation = Conversation()
    async with scripted(NEVER) as (model, backend):
        agent = Agent(model)
        async with agent.stream("Hi", conversation=conversation):
            await backend.next_request()
            with pytest.raises(RuntimeError, match="another run"):
                await agent.run("Ho", conversation=conversation)


async def test_three_invalid_calls_exhaust_the_run_and_are_not_executed() -> None:
    wrong = START + call_delta("get_weather", '{"town": 1}') + end("tool_calls")
    async with scripted(wrong, wrong, wrong) as (model, _):
        result = await Agent(model, [get_weather]).run("How is Paris?")
    assert (result.stop, result.rounds) == (Stop.EXHAUSTED, ())
    message = "The model gave no usable reply in 3 attempts: invalid arguments (get_weather: "
    assert result.text.startswith(message)
    assert (result.usage.requests, result.usage.prompt_tokens) == (3, 33)


async def test_a_retry_is_an_event_and_counts_in_the_usage() -> None:
    wrong = START + call_delta("get_weather", '{"town": 1}') + end("tool_calls")
    async with scripted(wrong, WEATHER_CALLED, FINE) as (model, _):
        async with Agent(model, [get_weather]).stream("How is Paris?") as run:
            events = [event async for event in run]
        usage = run.result.usage
    kinds = [type(event).__name__ for event in events]
    assert kinds[:2] == ["AskedAgain", "ToolStarted"]
    assert (usage.requests, usage.prompt_tokens) == (3, 33)


async def test_a_close_out_check_after_a_failed_tool_keeps_the_last_text_as_the_answer() -> None:
    wrong = START + call_delta("get_weather", '{"town": 1}') + end("tool_calls")
    replies = (BROKEN_CALLED, wrong, says("Which city?"), WEATHER_CALLED, FINE)
    async with scripted(*replies, guardrails={"close_out": "structural"}) as (model, backend):
        async with Agent(model, [broken, get_weather]).stream("How is Paris?") as run:
            events = [event async for event in run]
        result = run.result
    assert (result.stop, result.text) == (Stop.ANSWERED, "It is fine.")
    assert [len(tool_round.outcomes) for tool_round in result.rounds] == [1, 1]
    assert result.usage.requests == len(backend.upstream_requests) == 5
    assert sum(type(event).__name__ == "AskedAgain" for event in events) == 1


OTHER = Model("http://127.0.0.1:9")


@pytest.mark.parametrize(
    ("rules", "problem"),
    [
        (Workflow(required_steps=("nothing",)), "unknown tool 'nothing'; available: get_weather"),
        (Workflow(required_steps=("get_weather",) * 2), "listed twice"),
        (
            Workflow(prerequisites=(Prerequisite("get_weather", "get_weather"),)),
            "can never be called",
        ),
    ],
)
def test_an_unsatisfiable_workflow_is_refused_by_the_constructor(
    rules: Workflow, problem: str
) -> None:
    with pytest.raises(ValueError, match=problem):
        Agent(OTHER, [get_weather], workflow=rules)


def test_duplicate_tool_names_are_refused_by_the_constructor() -> None:
    with pytest.raises(ValueError, match="two tools have the name 'get_weather'"):
        Agent(OTHER, [get_weather, Toolset([get_weather])])


@pytest.mark.parametrize("prompt", [None, 7, {"role": "user"}, [{"role": "user", "content": ""}]])
def test_the_error_for_a_prompt_of_the_wrong_type_names_the_accepted_types(prompt: str) -> None:
    with pytest.raises((TypeError, ValueError), match="the prompt must be"):
        Agent(OTHER).stream(prompt)


def test_run_sync_returns_the_answer_and_runs_tools_in_another_thread() -> None:
    ran: list[str] = []

    def where() -> str:
        ran.append(threading.current_thread().name)
        return "here"

    backend = ScriptedBackend(calls("where", "{}"), FINE)
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(listening(backend)) as url,
        Model(url.url, settings={"backend": {"kind": "llama-server"}}) as model,
    ):
        result = Agent(model, [where]).run_sync("Where?")
    assert result.output == "It is fine."
    assert ran != [threading.current_thread().name]


@pytest.fixture
def default_interrupt_handler() -> Iterator[None]:
    """Restore the handler of Ctrl-C, which a background shell sets to ignore."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("default_interrupt_handler")
def test_a_keyboard_interrupt_ends_the_run() -> None:
    def interrupt() -> str:
        main = threading.main_thread().ident
        assert main is not None
        signal.pthread_kill(main, signal.SIGINT)
        return "sent"

    conversation = Conversation()
    backend = ScriptedBackend(calls("interrupt", "{}"), NEVER)
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(listening(backend)) as url,
        Model(url.url, settings={"backend": {"kind": "llama-server"}}) as model,
    ):
        with pytest.raises(KeyboardInterrupt):
            Agent(model, [interrupt]).run_sync("Stop me.", conversation=conversation)
        model.portal.call(until_free, conversation)
    roles = [message.role for message in conversation.history]
    assert roles in ([], ["user", "assistant", "tool"])


async def until_free(talk: Conversation) -> None:
    """Wait until no run uses a conversation."""
    while True:
        try:
            with talk.hold():
                return
        except RuntimeError:
            await asyncio.sleep(0)


WRONG = [
    ("Agent('http://127.0.0.1:9')", r"write Agent\(Model\('http://127.0.0.1:9'\)"),
    ("Agent(None)", r"Agent.model must be a Model, not None"),
    ("Agent(OTHER, get_weather)", r"write Agent\(model, \[function\]\)"),
    ("Agent(OTHER, 'get_weather')", r"write Agent\(model, \[function\]\)"),
    ("Agent(OTHER, instructions=None)", "Agent.instructions must be a text, not None"),
    ("Agent(OTHER, workflow='x')", "Agent.workflow must be a Workflow, not 'x'"),
    ("Agent(OTHER, limits=3)", "Agent.limits must be a Limits, not 3"),
    ("Agent(OTHER, parameters=['x'])", "Agent.parameters must be a dictionary"),
    ("Agent(OTHER, priority='urgent')", "Agent.priority must be one of high, normal, low, not"),
    ("Workflow(required_steps='look')", r"write required_steps=\('look',\)"),
    ("Workflow(terminal_tools=(get_weather,))", "must be a tuple of tool names, not"),
    ("Toolset(get_weather)", r"a list of tools: Toolset\(\[function\]\)"),
    ("Conversation.of('Hi')", r"Conversation.of\(\[...\]\)"),
    ("Limits(rounds=0)", "Limits.rounds must be at least 1, not 0"),
    ("Limits(parallel='8')", "Limits.parallel must be a number, not '8'"),
    ("tool(timeout='10')(get_weather)", "timeout must be a number of seconds or None"),
    ("tool(timeout=0)(get_weather)", "timeout must be more than 0 seconds, not 0"),
    ("tool(aliases='w')(get_weather)", r"write aliases=\['w'\]"),
    ("tool(parallel='no')(get_weather)", "parallel must be True or False, not 'no'"),
    ("Conversation.load('{}')", r"not written by Conversation.dump\(\): messages.0.role: This"),
    ("Agent(OTHER, ['get_weather'])", "a tool must be a function, not 'get_weather'"),
    ("Agent(OTHER, output='Weather')", "Agent.output must be a type, .* not 'Weather'"),
]


@pytest.mark.parametrize(("text", "message"), WRONG)
def test_an_invalid_argument_is_refused_with_the_expected_type(text: str, message: str) -> None:
    with pytest.raises((TypeError, ValueError, InvalidRequest), match=message):
        eval(text, globals())  # noqa: S307 - mypy would reject these calls


async def test_the_error_of_raise_for_stop_names_the_tool_the_missing_steps_and_the_reply() -> None:
    async with scripted(*[BROKEN_CALLED] * 3) as (model, _):
        failed = await Agent(model, [broken]).run("Go")
    with pytest.raises(
        ToolsFailed, match="the last failure was broken: Error: LookupError"
    ) as raised:
        failed.raise_for_stop()
    assert isinstance(raised.value.__cause__, LookupError)
    assert raised.value.tool == "broken"
    rules = Workflow(required_steps=("get_weather",), terminal_tools=("report",))
    async with scripted(*[REPORT_CALLED] * 3) as (model, _):
        skipped = await Agent(model, [get_weather, report], workflow=rules).run("Go")
    with pytest.raises(StepsSkipped, match="Not called yet: get_weather") as missing:
        skipped.raise_for_stop()
    assert (missing.value.attempts, missing.value.completed) == (3, ())
    assert missing.value.reply == 'report({"text": "fine"})'
    wrong = START + call_delta("get_weather", '{"town": 1}') + end("tool_calls")
    async with scripted(*[wrong] * 3) as (model, _):
        unfit = await Agent(model, [get_weather]).run("Go")
    with pytest.raises(NoValidReply, match=r"last defect: .*\(get_weather: ") as invalid:
        unfit.raise_for_stop()
    assert invalid.value.tool == "get_weather"


async def test_prerequisites_of_the_tool_decorator_are_enforced() -> None:
    @tool("Hand the report in.", prerequisites=["get_weather"])
    def hand_in(text: str) -> str:
        return text

    premature = calls("hand_in", '{"text": "fine"}')
    async with scripted(premature, WEATHER_CALLED, premature, FINE) as (model, backend):
        result = await Agent(model, [get_weather, hand_in]).run("Go")
    assert [tool_round.outcomes[0].call.name for tool_round in result.rounds] == [
        "get_weather",
        "hand_in",
    ]
    assert b"Hand the report in." in backend.upstream_requests[0].body
    with pytest.raises(ValueError, match="unknown tool 'get_weather'"):
        Agent(OTHER, [hand_in])


async def test_a_cached_tool_runs_once_per_run_for_equal_arguments() -> None:
    ran: list[str] = []

    @tool(cached=True)
    def look_up(city: str) -> str:
        ran.append(city)
        if city == "Nowhere":
            raise LookupError(city)
        return f"{city} is there."

    cached = [calls("look_up", f'{{"city":{gap}"{name}"}}') for gap, name in CITIES]
    async with scripted(*cached, FINE) as (model, _):
        agent = Agent(model, [look_up])
        result = await agent.run("Go")
        assert ran == ["Paris", "Nowhere", "Nowhere"]
        assert [tool_round.outcomes[0].text for tool_round in result.rounds][:2] == [
            "Paris is there."
        ] * 2


CITIES = [("", "Paris"), (" ", "Paris"), ("", "Nowhere"), (" ", "Nowhere")]


async def test_prompt_vars_are_inserted_in_instructions_and_the_end_mark_is_removed() -> None:
    async with scripted(says("It is fine.\n", "TASK_COMPLETE")) as (model, backend):
        prompt = "You know {city}. Say TASK_COMPLETE at the end."
        agent = Agent(model, [get_weather], instructions=prompt, end_mark="TASK_COMPLETE")
        result = await agent.run("Go", prompt_vars={"city": "Oslo"})
        with pytest.raises(ValueError, match=r"no value for \{city\} in the instructions"):
            await agent.run("Go", prompt_vars={})
    assert (result.success, result.output) == (True, "It is fine.")
    assert b"You know Oslo. Say" in backend.upstream_requests[0].messages[0]


async def test_a_hook_receives_each_compaction_including_a_custom_compaction() -> None:
    events: list[Compacted] = []
    conversation = Conversation.of([{"role": "user", "content": "Hi"}, *LONG])
    hooks = Hooks(on_compact=events.append)
    async with scripted(FINE, window=2048) as (model, _):
        await Agent(model).run("And now?", conversation=conversation.fork(), hooks=hooks)
    assert [cut.sent < cut.client for cut in events] == [True]

    def shorten(messages: list[JsonObject], room: int) -> list[JsonObject]:
        assert 0 < room < 2048
        return [messages[0], messages[-1]]

    backend = ScriptedBackend(FINE)
    backend.properties = {"default_generation_settings": {"n_ctx": 2048}, "total_slots": 1}
    kind: dict[str, dict[str, object]] = {"backend": {"kind": "llama-server"}}
    async with (
        listening(backend) as url,
        Model(url.url, settings=kind, compaction=shorten) as model,
    ):
        await Agent(model).run("And now?", conversation=conversation.fork(), hooks=hooks)
    assert len(backend.upstream_requests[0].messages) == 2
    assert [cut.folded for cut in events[1:]] == [24]


WORDS = "Some words that say nothing at all. " * 40
LONG: list[JsonObject] = [
    invalid
    for _ in range(12)
    for invalid in (
        JsonObject(role="assistant", content=WORDS),
        JsonObject(role="user", content="Go on."),
    )
]


async def test_the_run_ends_after_the_number_of_attempts_in_its_limits() -> None:
    unknown = calls("launch", "{}")
    async with scripted(*[unknown] * 5) as (model, backend):
        agent = Agent(model, [get_weather], limits=Limits(attempts=5))
        result = await agent.run("How is Paris?")
    assert (result.stop, result.attempts) == (Stop.EXHAUSTED, 5)
    assert len(backend.upstream_requests) == 5
    with pytest.raises(ValueError, match="attempts must be at least 1"):
        Limits(attempts=0)


async def test_each_added_message_is_an_event_with_its_type_and_round() -> None:
    events: list[tuple[str, int]] = []

    def on_chunk(event: RunEvent) -> None:
        if isinstance(event, Added):
            events.append((event.message.type, event.round))

    async with scripted(WEATHER_CALLED, FINE) as (model, _):
        await Agent(model, [get_weather]).run("How is Paris?", hooks=Hooks(on_chunk=on_chunk))
    assert events == [("prompt", 0), ("calls", 1), ("result", 1), ("answer", 1)]


async def test_the_option_shows_calls_streams_the_arguments_of_a_call() -> None:
    pieces = (
        START,
        call_delta("get_weather", '{"city": "'),
        call_delta("", "Par"),
        call_delta("", 'is"}'),
        end("tool_calls"),
    )
    async with (
        scripted(Script(pieces), FINE) as (model, _),
        Agent(model, [get_weather]).stream("How is Paris?", shows_calls=True) as stream,
    ):
        events = [event async for event in stream]
    deltas = [event for event in events if isinstance(event, CallDelta)]
    assert len(deltas) > 1
    assert {(delta.index, delta.name) for delta in deltas} == {(0, "get_weather")}
    assert json.parse("".join(delta.arguments for delta in deltas)) == {"city": "Paris"}
    started = next(event for event in events if isinstance(event, ToolStarted))
    assert events.index(deltas[-1]) < events.index(started)
    assert stream.result.text == "It is fine."


async def test_with_the_option_shows_calls_a_rescued_call_is_still_one_event() -> None:
    leaked = says('<tool_call>{"name": "get_weather", "arguments": {"city": "Paris"}}</tool_call>')
    for shows in (True, False):
        async with (
            scripted(leaked, FINE) as (model, _),
            Agent(model, [get_weather]).stream("Paris?", shows_calls=shows) as stream,
        ):
            deltas = [event async for event in stream if isinstance(event, CallDelta)]
        assert [delta.arguments for delta in deltas] == ['{"city":"Paris"}'] * shows


async def test_a_skipped_prerequisite_is_named_by_the_error() -> None:
    rules = Workflow(prerequisites=(Prerequisite("report", "get_weather"),))
    async with scripted(*[REPORT_CALLED] * 3) as (model, _):
        result = await Agent(model, [get_weather, report], workflow=rules).run("Report.")
    with pytest.raises(
        StepsSkipped, match=r"before report\. Not called yet: get_weather"
    ) as raised:
        result.raise_for_stop()
    assert (raised.value.tool, raised.value.pending) == ("report", ("get_weather",))


async def test_reasoning_effort_for_a_template_without_reasoning_is_an_error() -> None:
    async with scripted(FINE, FINE, window=4096) as (model, backend):
        assert backend.properties is not None
        backend.properties["chat_template"] = "{{ messages }}{{ tools }}"
        agent = Agent(model, parameters={"reasoning_effort": "high"})
        with pytest.raises(InvalidRequest, match="not support reasoning") as raised:
            await agent.run("Hi")
        assert raised.value.param == "reasoning_effort"
        assert (await Agent(model).run("Hi")).success


async def test_a_call_of_the_respond_tool_ends_the_run_with_its_message() -> None:
    answer = calls("respond", '{"message": "It is fine."}')
    rules = Workflow(terminal_tools=("respond",))
    async with scripted(WEATHER_CALLED, answer) as (model, _):
        agent = Agent(model, [get_weather, respond_tool()], workflow=rules)
        result = await agent.run("How is Paris?")
    assert (result.stop, result.output) == (Stop.TERMINAL, "It is fine.")
