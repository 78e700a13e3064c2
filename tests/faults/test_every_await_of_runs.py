"""F59: an agent's run that is interrupted at any of its awaits has a valid history."""

import asyncio
import gc
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field

import pytest

from proxy.conversation.messages import Message
from proxy.inference.retry_budget import FLOOR
from temper import Agent, Conversation, Model, Stop
from tests.fakes.agents import WEATHER_CALLED, scripted
from tests.fakes.interruption import (
    IGNORES_HALF_CONNECTIONS,
    Interruption,
    Strike,
    cancelled,
    interruptible,
    raised,
)
from tests.fakes.scripted_backend import ScriptedBackend
from tests.fakes.sse import calls, says

pytestmark = [pytest.mark.fault("F59"), IGNORES_HALF_CONNECTIONS]

FEWEST_STEPS = 15
MOST_STEPS = 2000
SCRIPTS = (WEATHER_CALLED, calls("get_time", "{}"), says("It is fine, ", "and noon."))


@dataclass
class Attempt:
    """A run that will be interrupted."""

    talk: Conversation = field(default_factory=Conversation)
    cancel: asyncio.Event = field(default_factory=asyncio.Event)


def stopped(attempt: Attempt) -> Strike:
    return lambda _: attempt.cancel.set()


async def get_weather(city: str) -> str:
    """Tell the weather in a city."""
    await asyncio.sleep(0)
    return f"It is 21 degrees in {city}."


async def get_time() -> str:
    """Tell the time."""
    await asyncio.sleep(0)
    return "noon"


@pytest.mark.deep
@pytest.mark.parametrize("end", [cancelled, raised, stopped])
async def test_an_agent_run_interrupted_at_any_await_leaves_a_valid_history_and_no_tasks(
    end: Callable[[Attempt], Strike],
) -> None:
    async with scripted(*SCRIPTS * MOST_STEPS) as (model, backend), interruptible():
        steps, is_whole = 0, False
        while not is_whole:
            steps += 1
            is_whole = await _ran(model, backend, end, steps)
        assert FEWEST_STEPS < steps < MOST_STEPS
    gc.collect()  # so that anyio reports leaked resources here and not in another test


async def _ran(
    model: Model, backend: ScriptedBackend, end: Callable[[Attempt], Strike], at: int
) -> bool:
    """Run an agent and check for leaks; return whether it finished without an interruption."""
    attempt = Attempt()
    agent = Agent(model, [get_weather, get_time])
    stops: list[Stop] = []

    async def work() -> None:
        result = await agent.run("Hi", conversation=attempt.talk, cancel=attempt.cancel)
        stops.append(result.stop)

    interruption = Interruption(at, end(attempt))
    await interruption.run(work())
    check(attempt.talk.history, at)
    opened = model.opened
    queue = opened.preparation.services.find("").admission.queue
    assert (queue.served, queue.waiting) == (0, 0), at
    with ExitStack() as requests:
        tickets = [requests.enter_context(opened.budget.request()) for _ in range(FLOOR)]
        assert all(ticket.may_retry() for ticket in tickets), at
    with attempt.talk.hold():  # raises if the interrupted run still uses the conversation
        pass
    # the next run starts again with the first scripted reply
    while len(backend.upstream_requests) % len(SCRIPTS):
        backend.upstream_requests.append(backend.upstream_requests[-1])
    if not interruption.has_struck:
        assert stops == [Stop.ANSWERED]
        assert [turn.answer for turn in attempt.talk.turns()] == ["It is fine, and noon."]
    return not interruption.has_struck


def check(history: tuple[Message, ...], at: int) -> None:
    """Check that each call has its result after it, and that the user message comes first."""
    waiting: list[str] = []
    for message in history:
        if message.role == "tool":
            assert message.tool_call_id == waiting.pop(0), at
        else:
            assert waiting == [], at
            waiting = [call.id for call in message.calls]
    assert waiting == [], at
    assert [message.role for message in history[:1]] == ["user"] * bool(history), at
