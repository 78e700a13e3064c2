"""Executes the calls of one reply: concurrently or in order, in threads or on the event loop.

A call has the time limit of its tool. An exception of a tool becomes a result that the model reads.
Two kinds of exceptions end the run: those that are not subclasses of `Exception`, such as
`SystemExit`, and those of the program's approval function.
"""

import asyncio
import inspect
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias, TypeVar

import msgspec
from anyio import CapacityLimiter, to_thread
from msgspec.structs import replace

from proxy import bounds
from proxy.conversation.failures import has_failed
from proxy.conversation.tools import Tool, ToolCall
from proxy.errors import ToolFailed, ToolRetry
from proxy.guardrails.transcript import list_completed_calls
from proxy.tools.executor import Outcome, RoundContext, Status
from proxy.tools.function import FunctionTool, ToolContext, expect_positive
from proxy.tools.results import cut, failure, format_result, on_one_line, text_of
from proxy.tools.schema import WrongArguments
from proxy.tools.signature import Function

Result = TypeVar("Result")

logger = logging.getLogger(__name__)

# Returns whether a call of a tool that needs approval may be executed.
Approve: TypeAlias = Callable[[ToolCall], Awaitable[bool]]

_REFUSED = "this call was not approved, and not made"
_CANCELLED = "the tool was cancelled"


class Limits(msgspec.Struct, frozen=True):
    """The limits of a run.

    After `rounds` rounds of tools, the model has to answer. After `failed_rounds` failed rounds in
    a row, the run is over. At most `parallel` calls of a reply run at once, and a result has at
    most `result_chars` characters. For each reply, the model is prompted at most `attempts`
    times; None means the setting guardrails.max_attempts.
    """

    rounds: int = 10
    failed_rounds: int = 3
    parallel: int = 8
    result_chars: int = bounds.RESULT_CHARACTERS
    attempts: int | None = None

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if name != "attempts" or self.attempts is not None:
                expect_positive(f"Limits.{name}", getattr(self, name))


class _RunEnded(Exception):
    """Wraps an exception that ends the run, until it has left the task group."""


@dataclass(frozen=True, slots=True)
class BoundToolset:
    """The tools of a run, as an `Executor`.

    `find` returns the tool with a name or alias. Without `approve`, calls of tools that need
    approval are refused.
    """

    specs: Callable[[], tuple[Tool, ...]]
    find: Callable[[str], FunctionTool | None]
    deps: object
    limits: Limits
    approve: Approve | None
    cached: dict[tuple[str, str], Outcome] = field(default_factory=dict)  # by name and arguments

    async def execute(
        self, calls: Sequence[ToolCall], context: RoundContext
    ) -> tuple[Outcome, ...]:
        tools = [self.find(call.name) for call in calls]
        # A tool that is not `parallel` may depend on the effects of all other calls.
        is_ordered = any(tool is not None and not tool.options.parallel for tool in tools)
        # A semaphore serves its waiters in order, so ordered calls run in the order of the reply.
        gate = asyncio.Semaphore(1 if is_ordered else max(1, self.limits.parallel))

        async def outcome(tool: FunctionTool | None, call: ToolCall) -> Outcome:
            async with gate:
                result = await self._outcome(tool, call, context)
            result = replace(result, text=cut(result.text, context.result_chars))
            context.finished(result)
            return result

        return await run_together(
            partial(outcome, tool, call) for tool, call in zip(tools, calls, strict=True)
        )

    async def _outcome(
        self, tool: FunctionTool | None, call: ToolCall, context: RoundContext
    ) -> Outcome:
        if tool is None:
            offered = ", ".join(tool.name for tool in self.specs()) or "none"
            return _fail(call, f"there is no tool {call.name!r}; there are: {offered}")
        if tool.options.needs_approval and not (self.approve and await self.approve(call)):
            return _fail(call, _REFUSED, Status.REFUSED)
        # calls whose arguments differ only in order or white space are equal
        key = (tool.name, _canonical(call.arguments))
        if tool.options.cached and key in self.cached:
            return replace(self.cached[key], call=call, seconds=0.0)
        started = time.monotonic()
        outcome = await self._call_safely(tool, call, context)
        if _is_error_text(outcome, context):
            outcome = replace(outcome, status=Status.FAILED)
        outcome = replace(outcome, seconds=time.monotonic() - started)
        if tool.options.cached and not outcome.is_failure:  # a failure may be temporary
            self.cached[key] = outcome
        return outcome

    async def _call_safely(
        self, tool: FunctionTool, call: ToolCall, context: RoundContext
    ) -> Outcome:
        try:
            return await self._call(tool, call, context)
        except (WrongArguments, ToolRetry) as error:
            return replace(_fail(call, str(error)), error=error)
        except ToolFailed as error:
            return replace(_fail(call, str(error)), counted=False, error=error)
        except asyncio.CancelledError:
            if (task := asyncio.current_task()) is not None and task.cancelling():
                raise  # the whole run was canceled, so there is no result for this tool
            return _fail(call, _CANCELLED, Status.CANCELLED)
        except Exception as error:
            logger.debug("the tool %s failed", tool.name, exc_info=error)
            return replace(_fail(call, on_one_line(error)), error=error)

    async def _call(self, tool: FunctionTool, call: ToolCall, context: RoundContext) -> Outcome:
        arguments = dict(tool.read(call.arguments))
        if tool.context is not None:
            arguments[tool.context] = ToolContext(self.deps, call, context.round, context.messages)
        limit = asyncio.timeout(tool.options.timeout)
        try:
            async with limit:
                value = await _value(tool.function, arguments)
        except TimeoutError:
            if not limit.expired():
                raise
            message = f"the tool took longer than {tool.options.timeout:g} s and was given up"
            return _fail(call, message, Status.TIMED_OUT)
        llm_format, display_format = tool.options.llm_format, tool.options.display_format
        text = None if llm_format is None else format_result(value, llm_format, tool.name)
        display = None
        if display_format is not None:
            display = format_result(value, display_format, tool.name)
        return Outcome(call, text_of(value) if text is None else text, value=value, display=display)


def _is_error_text(outcome: Outcome, context: RoundContext) -> bool:
    """Return whether a tool that has returned only JSON now returned "Error: ..." as text.

    This is a failure. A tool that usually returns text may return "Error: ..." without a failure.
    """
    is_text = isinstance(outcome.value, str) and not outcome.is_failure
    if not is_text or not has_failed(outcome.text):
        return False
    earlier = [
        call.result
        for call in list_completed_calls(context.messages)
        if call.name == outcome.call.name and not call.has_failed
    ]
    return bool(earlier) and all(result.lstrip()[:1] in ("{", "[") for result in earlier)


def _canonical(arguments: str) -> str:
    """Return arguments in canonical JSON; invalid JSON stays unchanged."""
    try:
        return msgspec.json.encode(msgspec.json.decode(arguments), order="sorted").decode()
    except ValueError:
        return arguments


def _fail(call: ToolCall, message: str, status: Status = Status.FAILED) -> Outcome:
    return Outcome(call, failure(message), status)


async def run_together(works: Iterable[Callable[[], Awaitable[Result]]]) -> tuple[Result, ...]:
    """Await several calls concurrently.

    The first exception cancels the other calls. It is raised directly, without an
    `ExceptionGroup`. Within its task, a `SystemExit` is wrapped in another exception, because
    asyncio ends the event loop if a `SystemExit` leaves a task.
    """
    errors: list[BaseException] = []

    async def guard(work: Callable[[], Awaitable[Result]]) -> Result:
        try:
            return await work()
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            errors.append(error)
            raise _RunEnded from error

    tasks: list[asyncio.Task[Result]] = []
    try:
        async with asyncio.TaskGroup() as group:
            tasks += [group.create_task(guard(work)) for work in works]
    except* _RunEnded:
        pass
    if errors:
        raise errors[0]
    return tuple(task.result() for task in tasks)


async def _value(function: Function, arguments: Mapping[str, object]) -> object:
    """Call a function, and await its result.

    A function that is not a coroutine function runs in a thread, with the same context variables. A
    thread cannot be stopped, so an abandoned function runs to its end. Only a generator can be
    stopped, after it has yielded its next value. The result of a generator is the list of its
    values.
    """
    is_abandoned = threading.Event()
    if any(map(inspect.iscoroutinefunction, (function, type(function).__call__))):
        value = function(**arguments)
    else:
        try:
            value = await to_thread.run_sync(
                partial(_call_function, function, arguments, is_abandoned),
                abandon_on_cancel=True,
                # not the shared limiter: 40 hanging tools would block every other run
                limiter=CapacityLimiter(1),
            )
        finally:
            is_abandoned.set()
    if inspect.isasyncgen(value):
        items: list[object] = []
        async with aclosing(value):
            async for item in value:
                _append(item, items)
        return items
    return await value if inspect.isawaitable(value) else value


def _call_function(
    function: Function, arguments: Mapping[str, object], is_abandoned: threading.Event
) -> object:
    value = function(**arguments)
    if not inspect.isgenerator(value):
        return value
    items: list[object] = []
    for item in value:
        if is_abandoned.is_set():
            break
        _append(item, items)
    return items


def _append(item: object, items: list[object]) -> None:
    if len(items) >= bounds.YIELDED:
        raise ValueError(f"a tool may yield at most {bounds.YIELDED} values")
    items.append(item)
