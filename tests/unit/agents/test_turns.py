import asyncio

import pytest

from proxy.conversation.json import JsonObject
from proxy.errors import BackendTimedOut, ContextOverflow
from temper import Agent, BackendFailed, Conversation, Stop
from tests.fakes.agents import WEATHER_CALLED, get_weather, scripted
from tests.fakes.scripted_backend import Ending, Script, refuses
from tests.fakes.spoken import START, says, text

pytestmark = pytest.mark.anyio

TOO_LONG: JsonObject = {
    "code": 400,
    "message": "the request exceeds the available context size",
    "type": "exceed_context_size_error",
    "n_prompt_tokens": 9_000,
    "n_ctx": 3_000,
}


async def test_a_turn_that_takes_too_long_is_given_up() -> None:
    never = Script((START, text("It is"), Ending.NEVER))
    patience: dict[str, object] = {"kind": "llama-server", "deadline_seconds": 1}
    async with scripted(never, backend=patience) as (model, backend):
        with pytest.raises(BackendTimedOut, match="did not finish within 1 s"):
            await Agent(model).run("Hi")
        await backend.questions[0].left.wait()


async def test_a_prompt_that_proves_too_long_is_shortened() -> None:
    said: list[JsonObject] = [
        {"role": role, "content": f"{number} " * 300}
        for number in range(12)
        for role in ("user", "assistant")
    ]
    async with scripted(refuses(400, TOO_LONG), says("Fine.")) as (model, backend):
        talk = Conversation.of(said)
        result = await Agent(model, [get_weather]).run("And now?", conversation=talk)
    assert result.stop is Stop.ANSWERED
    first, second = (len(question.body) for question in backend.questions)
    assert second < first / 2
    assert len(talk) == 26


async def test_a_prompt_that_cannot_be_shortened_is_an_error() -> None:
    async with scripted(*[refuses(400, TOO_LONG)] * 9) as (model, _):
        with pytest.raises((ContextOverflow, BackendFailed)):
            await Agent(model, [get_weather]).run("Hi")


async def test_tools_run_while_nobody_waits_for_a_slot() -> None:
    served: list[int] = []
    async with scripted(WEATHER_CALLED, says("Fine.")) as (model, _):
        line = model.opened.preparation.services.find("").admission.line

        def get_weather(city: str) -> str:
            """Tell the weather."""
            served.append(line.served)
            return city

        await Agent(model, [get_weather]).run("How is Paris?")
        assert (served, line.served) == ([0], 0)


async def test_several_runs_take_turns_at_the_slots_there_are() -> None:
    one_slot: dict[str, object] = {"kind": "llama-server", "parallel_requests": 1}
    scripts = [WEATHER_CALLED] * 3 + [says("Fine.")] * 3
    async with scripted(*scripts, backend=one_slot) as (model, backend):
        line = model.opened.preparation.services.find("").admission.line
        busiest = 0

        async def get_weather(city: str) -> str:
            """Tell the weather."""
            nonlocal busiest
            busiest = max(busiest, line.served)
            return city

        agent = Agent(model, [get_weather])
        results = await asyncio.gather(*(agent.run("How is Paris?") for _ in range(3)))
    assert [result.stop for result in results] == [Stop.ANSWERED] * 3
    assert [len(question.messages) for question in backend.questions] == [1, 1, 1, 3, 3, 3]
    assert busiest <= 1
