import asyncio
from collections.abc import Sequence

from proxy.conversation.tools import Tool, ToolCall
from proxy.tool_rounds.executor import Executor, RoundContext
from proxy.tool_rounds.outcomes import Outcome


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
