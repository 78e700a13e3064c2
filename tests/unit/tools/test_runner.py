import logging
from collections.abc import Sequence
from contextlib import aclosing

import pytest

from proxy.conversation.replies import ReplyEvent, ReplyFinished, TextDelta, ToolCallStarted
from proxy.errors import ContextOverflow, GuardrailsExhausted, TemperError
from proxy.guardrails.offer import TextPolicy
from proxy.inference.plan import Policy
from proxy.tools.executor import RoundEvent
from proxy.tools.run import Run, RunConfig, Stop
from proxy.tools.runner import carry_out
from tests.fakes.backend import ScriptedBackend, every
from tests.fakes.playbook import CLOCK, make_request
from tests.fakes.turns import ScriptedTools, ScriptedTurns, calls

CLOCK_CALLED = calls("get_time")
NOON: list[ReplyEvent] = [TextDelta("It is noon."), ReplyFinished("stop")]
OVERFLOW = ContextOverflow("too long", 9_000, 8_192)


class ScriptedRun:
    """A run with a scripted backend, and all its observable effects."""

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
        self.run = Run(request, RunConfig(frozenset(("get_time",)), rounds=rounds, window=8_192))
        self.noticed: list[RoundEvent] = []
        self.answering: list[int] = []
        self.batches = carry_out(self.run, self.turns, self.tools, self.notice)

    async def notice(self, event: RoundEvent) -> None:
        self.noticed.append(event)
        self.answering.append(self.turns.answering)

    @property
    def roles(self) -> list[str]:
        return [message.role for message in self.run.added]


async def test_a_run_with_zero_rounds_sends_one_request_without_a_note() -> None:
    playing = ScriptedRun(NOON, rounds=0)
    await every(playing.batches)
    assert [message.role for message in playing.backend.upstream_requests[0].messages] == ["user"]


async def test_closing_the_run_closes_its_upstream_request() -> None:
    playing = ScriptedRun([TextDelta("It"), TextDelta(" is"), ReplyFinished("stop")])
    async with aclosing(playing.batches):
        assert await anext(playing.batches) == [TextDelta("It")]
    assert (playing.backend.closed, playing.run.stop) == (1, Stop.CANCELLED)
    assert playing.run.added == ()


WRONG: list[ReplyEvent] = [ToolCallStarted(0, None, "delete"), ReplyFinished("tool_calls")]


async def test_a_strict_turn_without_a_valid_reply_ends_the_run_with_its_defect() -> None:
    strict = Policy(is_strict=True, text_policy=TextPolicy.REQUIRE)
    playing = ScriptedRun(CLOCK_CALLED, WRONG, WRONG, WRONG, policy=strict)
    with pytest.raises(GuardrailsExhausted):
        await every(playing.batches)
    assert (playing.run.stop, playing.run.defect) == (Stop.EXHAUSTED, "unknown_tool")
    assert playing.roles == ["assistant", "tool"]


async def test_no_tool_runs_after_exhausted_retries() -> None:
    playing = ScriptedRun(WRONG, WRONG, WRONG)
    assert (await every(playing.batches))[-1] == ReplyFinished("stop")
    assert playing.run.stop is Stop.EXHAUSTED
    assert playing.tools.contexts == []


async def test_a_tool_round_is_logged_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "proxy.runner")
    playing = ScriptedRun(CLOCK_CALLED, NOON)
    await every(playing.batches)
    (line,) = [record.getMessage() for record in caplog.records if record.name == "proxy.runner"]
    assert line.startswith("tool round 1 took 0.")
    assert line.endswith(": get_time done 0.0 s")
