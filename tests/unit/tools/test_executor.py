import asyncio
from collections.abc import Sequence

import pytest

from proxy.conversation.messages import user_message
from proxy.conversation.tools import Tool, ToolCall
from proxy.tools.executor import (
    Added,
    Executor,
    Outcome,
    RoundContext,
    RoundEvent,
    Status,
    ToolFinished,
    ToolStarted,
)
from tests.fakes.rounds import called, done

CALL = ToolCall("call_1", "add", "{}")


def test_an_outcome_is_a_message_that_answers_its_call() -> None:
    message = Outcome(CALL, "3").message
    assert (message.role, message.text, message.tool_call_id) == ("tool", "3", "call_1")


@pytest.mark.parametrize("status", Status)
def test_only_what_was_done_is_no_failure(status: Status) -> None:
    assert Outcome(CALL, "", status).is_failure is (status is not Status.DONE)


def test_what_is_told_of_a_round_names_its_number() -> None:
    call = called(1)
    told: list[RoundEvent] = [
        ToolStarted(call, 2),
        ToolFinished(done(call), 2),
        Added(user_message("Hi")),
    ]
    assert [one.round for one in told if not isinstance(one, Added)] == [2, 2]


class Echo:
    def specs(self) -> Sequence[Tool]:
        return [Tool("echo", {"type": "object"}, b"{}")]

    async def execute(
        self, calls: Sequence[ToolCall], context: RoundContext
    ) -> tuple[Outcome, ...]:
        outcomes = [Outcome(call, call.arguments[: context.result_chars]) for call in calls]
        for outcome in outcomes:
            context.finished(outcome)
        return tuple(outcomes)


def test_whoever_offers_and_runs_tools_is_an_executor() -> None:
    executor: Executor = Echo()
    call = ToolCall("call_1", executor.specs()[0].name, '{"text":"hello"}')
    outcomes = asyncio.run(executor.execute([call, call], RoundContext(round=2, result_chars=6)))
    assert [outcome.text for outcome in outcomes] == ['{"text', '{"text']
