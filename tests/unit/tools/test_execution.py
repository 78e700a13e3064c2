import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy import bounds
from proxy.conversation.messages import assistant_message, tool_result, user_message
from proxy.conversation.tools import ToolCall
from proxy.errors import ToolFailed, ToolRetry
from proxy.tools.execution import Approve, BoundToolset, Limits
from proxy.tools.executor import Outcome, RoundContext, Status
from proxy.tools.function import FunctionTool, ToolContext, tool
from proxy.tools.toolset import Toolset
from tests.examples import examples
from tests.timeouts import TIMEOUT_SECONDS

AT_ONCE = 1e-9
USER: ContextVar[str] = ContextVar("USER")


def call(name: str, arguments: str = "{}", number: int = 0) -> ToolCall:
    return ToolCall(f"call_{number}", name, arguments)


async def execute(
    tools: Sequence[FunctionTool],
    calls: Sequence[ToolCall],
    *,
    deps: object = None,
    approve: Approve | None = None,
    context: RoundContext | None = None,
) -> tuple[Outcome, ...]:
    known = {tool.name: tool for tool in tools}
    bound = BoundToolset(lambda: (), known.get, deps, Limits(), approve)
    return await bound.execute(calls, context or RoundContext())


def execute_once(*tools: FunctionTool, arguments: str = "{}") -> Outcome:
    """Call the first tool once, and return its outcome."""
    (outcome,) = asyncio.run(execute(tools, [call(tools[0].name, arguments)]))
    return outcome


@contextmanager
def releasing_event() -> Iterator[threading.Event]:
    """Yield an event, and set it at the end, so that threads that wait for it end."""
    event = threading.Event()
    try:
        yield event
    finally:
        event.set()


def test_sync_and_async_functions_get_typed_values() -> None:
    @tool
    def plain(numbers: set[int]) -> str:
        return repr(numbers)

    @tool
    async def waiting(numbers: set[int]) -> str:
        return repr(numbers)

    for function in (plain, waiting):
        outcome = execute_once(function, arguments='{"numbers":[1,1]}')
        assert (outcome.text, outcome.status, outcome.value) == ("{1}", Status.DONE, "{1}")
        assert outcome.seconds >= 0


def test_an_awaitable_returned_by_a_sync_function_is_awaited() -> None:
    async def later() -> str:
        return "later"

    class AsyncCallable:
        """An object with an asynchronous `__call__`."""

        async def __call__(self) -> str:
            return threading.current_thread().name

    @tool
    def now() -> object:
        return later()

    assert execute_once(now).text == "later"
    assert execute_once(tool(AsyncCallable())).text == threading.main_thread().name


def test_the_tool_context_has_the_deps_and_the_call_and_the_round() -> None:
    seen: list[ToolContext[str]] = []

    @tool
    def look(it: ToolContext[str]) -> None:
        seen.append(it)

    messages = (user_message("Hi"),)
    context = RoundContext(3, messages)
    asyncio.run(execute([look], [call("look")], deps="deps", context=context))

    assert seen == [ToolContext("deps", call("look"), 3, messages)]


def test_context_variables_reach_sync_and_async_functions() -> None:
    @tool
    def plain() -> str:
        return USER.get()

    @tool
    async def waiting() -> str:
        return USER.get()

    async def run() -> list[str]:
        USER.set("ann")
        calls = [call("plain"), call("waiting")]
        return [result.text for result in await execute([plain, waiting], calls)]

    assert asyncio.run(run()) == ["ann", "ann"]


def test_a_sleeping_function_does_not_block_the_event_loop() -> None:
    async def run(may_wake: threading.Event) -> Outcome:
        loop, sleeping = asyncio.get_running_loop(), asyncio.Event()

        @tool(timeout=None)
        def sleep() -> bool:
            loop.call_soon_threadsafe(sleeping.set)
            return may_wake.wait(TIMEOUT_SECONDS)

        task = asyncio.create_task(execute([sleep], [call("sleep")]))
        await sleeping.wait()
        for _ in range(100):  # a blocked event loop would not get here
            await asyncio.sleep(0)
        assert not task.done()
        may_wake.set()
        return (await task)[0]

    with releasing_event() as may_wake:
        assert asyncio.run(run(may_wake)).value is True


def test_eight_sync_functions_run_concurrently() -> None:
    run_together = threading.Barrier(8)

    @tool
    def meet() -> int:
        return run_together.wait(TIMEOUT_SECONDS)

    calls = [call("meet", number=number) for number in range(8)]
    outcomes = asyncio.run(execute([meet], calls))

    assert sorted(str(outcome.value) for outcome in outcomes) == [
        str(number) for number in range(8)
    ]


def test_at_most_eight_functions_run_concurrently() -> None:
    running: list[int] = []
    most: list[int] = []

    @tool
    async def count() -> None:
        running.append(1)
        await asyncio.sleep(0)
        most.append(len(running))
        running.pop()

    calls = [call("count", number=number) for number in range(20)]
    asyncio.run(execute([count], calls))

    assert max(most) == 8


@given(st.permutations(range(6)))
@settings(max_examples=examples(20))
def test_outcomes_have_the_order_of_the_calls(order: list[int]) -> None:
    ended: list[int] = []

    async def run() -> tuple[Outcome, ...]:
        turns = [asyncio.Event() for _ in order]
        turns[order[0]].set()

        @tool
        async def wait(number: int) -> int:
            await turns[number].wait()
            ended.append(number)
            if len(ended) < len(order):
                turns[order[len(ended)]].set()
            return number

        calls = [call("wait", f'{{"number":{number}}}', number) for number in range(len(order))]
        return await execute([wait], calls)

    outcomes = asyncio.run(run())

    assert ended == order
    assert [outcome.value for outcome in outcomes] == sorted(order)
    assert [outcome.call.id for outcome in outcomes] == [
        f"call_{number}" for number in sorted(order)
    ]


def test_one_sequential_tool_makes_all_calls_of_a_reply_sequential() -> None:
    events: list[str] = []

    @tool
    async def free(number: int) -> None:
        events.append(f"begin {number}")
        await asyncio.sleep(0)
        events.append(f"end {number}")

    @tool(parallel=False)
    async def alone(number: int) -> None:
        events.append(f"begin {number}")
        await asyncio.sleep(0)
        events.append(f"end {number}")

    calls = [call("free", '{"number":1}'), call("alone", '{"number":2}')]
    calls.append(call("free", '{"number":3}'))
    asyncio.run(execute([free, alone], calls))

    assert events == ["begin 1", "end 1", "begin 2", "end 2", "begin 3", "end 3"]


def test_hanging_functions_time_out_and_other_functions_do_not() -> None:
    with releasing_event() as may_wake:

        @tool(timeout=AT_ONCE)
        def sleep() -> bool:
            return may_wake.wait(TIMEOUT_SECONDS)

        @tool(timeout=AT_ONCE)
        async def wait() -> None:
            await asyncio.Event().wait()

        @tool
        async def work() -> str:
            return "worked"

        calls = [call("sleep"), call("wait"), call("work")]
        slept, waited, worked = asyncio.run(execute([sleep, wait, work], calls))

    for function in (slept, waited):
        assert function.status is Status.TIMED_OUT
        assert function.text == "Error: the tool took longer than 1e-09 s and was given up"
        assert function.counted
    assert worked.text == "worked"


def test_a_timeout_raised_by_the_tool_is_an_ordinary_error() -> None:
    @tool
    async def fetch() -> None:
        raise TimeoutError("no answer")

    outcome = execute_once(fetch)

    assert (outcome.status, outcome.text) == (Status.FAILED, "Error: TimeoutError: no answer")


@pytest.mark.parametrize(
    ("error", "text", "counted"),
    [
        (ToolRetry("give the city in English"), "Error: give the city in English", True),
        (ToolFailed("no such city"), "Error: no such city", False),
        (ValueError("a\nb"), "Error: ValueError: a b", True),
        (KeyError("x"), "Error: KeyError: 'x'", True),
        (StopIteration(), "Error: ", True),
    ],
)
def test_an_exception_of_a_tool_becomes_one_line_for_the_model(
    error: Exception, text: str, counted: bool
) -> None:
    @tool
    def plain() -> None:
        raise error

    @tool
    async def waiting() -> None:
        raise error

    for function in (plain, waiting):
        outcome = execute_once(function)
        assert outcome.status is Status.FAILED
        assert outcome.text.startswith(text)
        assert outcome.text.count("\n") == 0
        assert outcome.counted is counted


def test_a_traceback_is_logged_at_debug_level_and_not_sent_to_the_model(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @tool
    def fail() -> None:
        raise ValueError("broken")

    with caplog.at_level(logging.DEBUG, "proxy.tools"):
        outcome = execute_once(fail)

    assert "Traceback" not in outcome.text
    (record,) = [record for record in caplog.records if record.name.startswith("proxy.tools")]
    assert record.levelno == logging.DEBUG
    assert record.exc_info


def test_arguments_of_the_wrong_type_are_a_counted_failure() -> None:
    @tool
    def f(number: int) -> None: ...

    outcome = execute_once(f, arguments='{"number":"secret"}')

    assert outcome.status is Status.FAILED
    assert outcome.counted
    assert outcome.text.startswith("Error: /number: Input should be a valid integer")
    assert "secret" not in outcome.text


def test_an_unknown_tool_is_a_failure() -> None:
    (outcome,) = asyncio.run(execute([], [call("f")]))

    assert (outcome.status, outcome.text) == (
        Status.FAILED,
        "Error: there is no tool 'f'; there are: none",
    )


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit()])
@pytest.mark.parametrize("is_async", [False, True])
def test_a_base_exception_of_a_tool_is_raised_and_cancels_other_calls(
    error: BaseException, is_async: bool
) -> None:
    cancelled: list[str] = []

    def plain() -> None:
        raise error

    async def waiting() -> None:
        raise error

    @tool
    async def other() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.append("other")

    async def run() -> str:
        ends = tool(name="ends")(waiting if is_async else plain)
        with pytest.raises(type(error)) as ended:
            await execute([ends, other], [call("other"), call("ends")])
        assert ended.value is error
        return "the loop goes on"

    assert asyncio.run(run()) == "the loop goes on"
    assert cancelled == ["other"]


def test_canceling_the_execution_cancels_its_calls() -> None:
    cancelled: list[str] = []

    async def run() -> None:
        begun = asyncio.Event()

        @tool
        async def wait() -> None:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.append("wait")

        task = asyncio.create_task(execute([wait], [call("wait")]))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())

    assert cancelled == ["wait"]


def test_a_tool_that_cancels_itself_does_not_cancel_the_run() -> None:
    @tool
    async def stop() -> None:
        raise asyncio.CancelledError

    outcome = execute_once(stop)

    assert outcome.status is Status.CANCELLED
    assert outcome.text == "Error: the tool was cancelled"


def test_a_tool_that_needs_approval_runs_only_after_approval() -> None:
    questions: list[ToolCall] = []

    @tool(needs_approval=True)
    def delete(name: str) -> str:
        return f"deleted {name}"

    async def only_a(call: ToolCall) -> bool:
        questions.append(call)
        return '"a"' in call.arguments

    calls = [call("delete", '{"name":"a"}', 0), call("delete", '{"name":"b"}', 1)]
    done, refused = asyncio.run(execute([delete], calls, approve=only_a))
    without_approval, _ = asyncio.run(execute([delete], calls))

    assert questions == calls
    assert done.text == "deleted a"
    for function in (refused, without_approval):
        assert function.status is Status.REFUSED
        assert function.text == "Error: this call was not approved, and not made"


def test_an_exception_of_the_approval_function_is_raised() -> None:
    @tool(needs_approval=True)
    def delete() -> None: ...

    async def broken(_: ToolCall) -> bool:
        raise LookupError("nobody is there")

    with pytest.raises(LookupError, match="nobody is there"):
        asyncio.run(execute([delete], [call("delete")], approve=broken))


def test_a_result_is_formatted_by_llm_format_and_display_format() -> None:
    def report() -> dict[str, object]:
        return {"city": "Oslo", "degrees": 3}

    wordy = tool(llm_format="{city}: {degrees} C", display_format="It is {degrees} C.")(report)
    broken = tool(llm_format="{nothing}", display_format="{nothing}")(report)

    outcome = execute_once(wordy)
    assert (outcome.text, outcome.display) == ("Oslo: 3 C", "It is 3 C.")
    assert outcome.value == {"city": "Oslo", "degrees": 3}
    outcome = execute_once(broken)
    assert (outcome.text, outcome.display) == ('{"city":"Oslo","degrees":3}', None)


def test_results_and_errors_are_truncated_to_result_chars() -> None:
    @tool
    def long() -> str:
        return "a" * 1000

    @tool
    def fail() -> str:
        raise ToolRetry("b" * 1000)

    context = RoundContext(result_chars=100)
    outcomes = asyncio.run(execute([long, fail], [call("long"), call("fail")], context=context))

    assert [len(outcome.text) for outcome in outcomes] == [100, 100]
    assert len(str(outcomes[0].value)) == 1000


@pytest.mark.fault("F87")
def test_a_generator_of_a_canceled_call_is_closed() -> None:
    begun, closed = threading.Event(), threading.Event()

    @tool
    def endless() -> Iterator[int]:
        begun.set()
        try:
            for number in count():
                time.sleep(0.001)
                yield number
        finally:
            closed.set()

    async def give_up() -> None:
        running = asyncio.create_task(execute([endless], [call("endless")]))
        await asyncio.to_thread(
            begun.wait, TIMEOUT_SECONDS
        )  # canceled earlier, the call would never start
        running.cancel()
        await asyncio.wait({running})

    asyncio.run(give_up())
    assert closed.wait(TIMEOUT_SECONDS)


@pytest.mark.fault("F87")
def test_a_generator_with_too_many_values_is_an_error() -> None:
    @tool
    def endless() -> Iterator[int]:
        yield from count()

    @tool
    async def endless_too() -> AsyncIterator[int]:
        for number in count():
            yield number

    for function in (endless, endless_too):
        assert (
            execute_once(function).text
            == f"Error: ValueError: a tool may yield at most {bounds.YIELDED} values"
        )


def test_generators_run_in_another_thread_and_their_values_become_a_list() -> None:
    @tool
    def counting() -> Iterator[object]:
        yield 1
        yield threading.current_thread() is threading.main_thread()

    @tool
    async def waiting() -> AsyncIterator[int]:
        yield 1
        await asyncio.sleep(0)
        yield 2

    @tool
    def failing() -> Iterator[int]:
        yield 1
        raise ToolFailed("nothing behind it")

    assert execute_once(counting).value == [1, False]
    assert (execute_once(waiting).value, execute_once(waiting).text) == ([1, 2], "[1,2]")
    assert execute_once(failing).text == "Error: nothing behind it"


def test_characters_that_utf_8_cannot_encode_are_replaced() -> None:
    class Word(str):
        """A string of a program's own class."""

    @tool
    def names() -> str:
        return "caf\udce9.txt"  # as os.listdir() gives it

    @tool
    def failing() -> str:
        raise ValueError("no caf\udce9.txt")

    @tool
    def custom_word() -> Word:
        return Word("as it is")

    messages = [execute_once(result).message.source for result in (names, failing, custom_word)]
    assert b"caf?.txt" in messages[0]
    assert b"ValueError: no caf?.txt" in messages[1]
    assert b"as it is" in messages[2]


@pytest.mark.parametrize(
    ("before", "status"),
    [('{"degrees": 21}', Status.FAILED), ("21 degrees", Status.DONE), (None, Status.DONE)],
)
async def test_text_that_begins_with_error_is_a_failure_if_the_tool_returned_json_before(
    before: str | None, status: Status
) -> None:
    def get_weather(city: str) -> str:
        return f"Error: {city} not found"

    call = ToolCall("b", "get_weather", '{"city": "Oslo"}')
    earlier = ToolCall("a", "get_weather", "{}")
    history = (
        () if before is None else (assistant_message("", (earlier,)), tool_result("a", before))
    )
    context = RoundContext(2, history)
    (outcome,) = await Toolset([get_weather]).execute([call], context)
    assert (outcome.status, outcome.text) == (status, "Error: Oslo not found")
