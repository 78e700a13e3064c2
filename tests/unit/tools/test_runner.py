import asyncio
import logging
from collections.abc import Sequence
from contextlib import aclosing

import pytest

from proxy.conversation.replies import ReplyEvent, ReplyFinished, TextDelta, ToolCallStarted
from proxy.errors import BackendUnavailable, ContextOverflow, GuardrailsExhausted, TemperError
from proxy.guardrails.offer import TextPolicy
from proxy.inference.plan import Policy
from proxy.tools.executor import Added, RoundEvent, ToolFinished, ToolStarted
from proxy.tools.run import Run, RunTerms, Stop
from proxy.tools.runner import carry_out
from tests.fakes.backend import ScriptedBackend, every
from tests.fakes.playbook import CLOCK, make_request
from tests.fakes.turns import ScriptedTools, ScriptedTurns, calls

CLOCK_CALLED = calls("get_time")
NOON: list[ReplyEvent] = [TextDelta("It is noon."), ReplyFinished("stop")]
OVERFLOW = ContextOverflow("too long", 9_000, 8_192)


class Playing:
    """A run before a scripted backend, and everything that is noticed of it."""

    def __init__(
        self,
        *scripts: Sequence[ReplyEvent | TemperError],
        policy: Policy | None = None,
        rounds: int = 10,
        texts: Sequence[str | None] = ("noon", "noon", "noon"),
    ) -> None:
        self.backend = ScriptedBackend([[*script] for script in scripts])
        self.turns = ScriptedTurns(self.backend, policy or Policy())
        self.tools = ScriptedTools((CLOCK,), [*texts])
        request = make_request(tools=(CLOCK,))
        self.run = Run(request, RunTerms(frozenset(("get_time",)), rounds=rounds, window=8_192))
        self.noticed: list[RoundEvent] = []
        self.answering: list[int] = []
        self.batches = carry_out(self.run, self.turns, self.tools, self.notice)

    async def notice(self, event: RoundEvent) -> None:
        self.noticed.append(event)
        self.answering.append(self.turns.answering)

    @property
    def roles(self) -> list[str]:
        return [message.role for message in self.run.added]


async def test_a_model_is_asked_its_calls_are_run_and_it_is_asked_again() -> None:
    playing = Playing(CLOCK_CALLED, NOON)
    assert await every(playing.batches) == [*NOON]
    assert playing.run.stop is Stop.ANSWERED
    assert [type(event) for event in playing.noticed] == [
        *(ToolStarted, ToolFinished),
        *(Added, Added),
        Added,
    ]
    assert playing.answering == [0] * 5  # nobody holds a slot while tools run
    (context,) = playing.tools.contexts
    assert (context.round, context.result_chars) == (1, 6_144)
    assert [message.role for message in context.messages] == ["user"]
    sent = playing.backend.upstream_requests[1].messages
    assert [message.role for message in sent] == ["user", "assistant", "tool"]


async def test_the_last_question_asks_for_an_answer_and_leaves_the_tools_where_they_are() -> None:
    playing = Playing(CLOCK_CALLED, NOON, rounds=1)
    await every(playing.batches)
    first, last = playing.backend.upstream_requests
    assert last.tools == first.tools
    assert last.tool_choice.value == "none"  # type: ignore[union-attr]
    assert "which is the limit" in last.messages[-1].text
    assert playing.run.stop is Stop.ROUNDS


async def test_a_run_without_rounds_is_one_question_without_a_note() -> None:
    playing = Playing(NOON, rounds=0)
    await every(playing.batches)
    assert [message.role for message in playing.backend.upstream_requests[0].messages] == ["user"]


async def test_closing_it_closes_the_generation() -> None:
    playing = Playing([TextDelta("It"), TextDelta(" is"), ReplyFinished("stop")])
    async with aclosing(playing.batches):
        assert await anext(playing.batches) == [TextDelta("It")]
    assert (playing.backend.closed, playing.run.stop) == (1, Stop.CANCELLED)
    assert playing.run.added == ()


async def test_cancelling_it_cancels_the_tools_and_leaves_a_history_that_goes_on() -> None:
    playing = Playing(CLOCK_CALLED, texts=[None])
    work = asyncio.create_task(every(playing.batches))
    await playing.tools.running.wait()
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    assert (playing.tools.cancelled, playing.run.stop) == (1, Stop.CANCELLED)
    assert playing.roles == ["assistant", "tool"]


async def test_an_error_of_the_backend_is_raised_and_the_rounds_before_it_stay() -> None:
    down = BackendUnavailable("scripted", "is down")
    playing = Playing(CLOCK_CALLED, [down])
    with pytest.raises(BackendUnavailable):
        await every(playing.batches)
    assert (playing.roles, playing.run.stop) == (["assistant", "tool"], Stop.CANCELLED)


async def test_a_prompt_that_proves_too_long_is_shortened() -> None:
    playing = Playing([OVERFLOW], NOON)
    assert (await every(playing.batches))[-1] == ReplyFinished("stop")
    assert len(playing.turns.asked) == 1


async def test_a_prompt_that_cannot_be_shortened_is_an_error() -> None:
    playing = Playing([OVERFLOW], [OVERFLOW])
    with pytest.raises(ContextOverflow):
        await every(playing.batches)


WRONG: list[ReplyEvent] = [ToolCallStarted(0, None, "delete"), ReplyFinished("tool_calls")]


async def test_a_strict_turn_that_fails_ends_the_run_with_its_defect() -> None:
    strict = Policy(is_strict=True, text_policy=TextPolicy.REQUIRE)
    playing = Playing(CLOCK_CALLED, WRONG, WRONG, WRONG, policy=strict)
    with pytest.raises(GuardrailsExhausted):
        await every(playing.batches)
    assert (playing.run.stop, playing.run.defect) == (Stop.EXHAUSTED, "unknown_tool")
    assert playing.roles == ["assistant", "tool"]


async def test_of_a_ladder_that_ends_nothing_is_run() -> None:
    playing = Playing(WRONG, WRONG, WRONG)
    assert (await every(playing.batches))[-1] == ReplyFinished("stop")
    assert playing.run.stop is Stop.EXHAUSTED
    assert playing.tools.contexts == []


async def test_whoever_takes_notice_may_end_it() -> None:
    playing = Playing(CLOCK_CALLED)

    async def refuse(event: RoundEvent) -> None:
        if isinstance(event, ToolStarted):
            raise LookupError(event.call.name)

    with pytest.raises(LookupError):
        await every(carry_out(playing.run, playing.turns, playing.tools, refuse))
    assert playing.roles == ["assistant", "tool"]


async def test_a_round_is_a_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "proxy.runner")
    playing = Playing(CLOCK_CALLED, NOON)
    await every(playing.batches)
    (line,) = [one.getMessage() for one in caplog.records if one.name == "proxy.runner"]
    assert line.startswith("round 1 of tools took 0.")
    assert line.endswith(": get_time done 0.0 s")
