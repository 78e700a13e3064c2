import pytest

from proxy.agents.results import RunResult, Usage, usage_of
from proxy.conversation.replies import UsageReported
from proxy.errors import (
    NoValidReply,
    RoundsExhausted,
    RunCancelled,
    RunStopped,
    StepsSkipped,
    ToolsFailed,
)
from proxy.tools.executor import Outcome, Round, Status
from proxy.tools.run import Stop
from proxy.tools.transcript import Conversation
from tests.fakes.rounds import called

CAUSE = LookupError("no")
FAILED = Round(
    "", (Outcome(called(1), "Error: no", Status.FAILED, error=CAUSE), Outcome(called(2), "3"))
)


def result(stop: Stop, defect: str = "") -> RunResult[str]:
    return RunResult(
        stop,
        None,
        "",
        (FAILED,),
        (),
        Conversation(),
        defect=defect,
        attempts=3,
        reply="f(1)",
        required=("look_up", "ask"),
        completed=("ask",),
    )


@pytest.mark.parametrize("stop", [Stop.ANSWERED, Stop.TERMINAL])
def test_the_method_raise_for_stop_returns_a_result_with_an_answer(stop: Stop) -> None:
    answered = result(stop)
    assert answered.raise_for_stop() is answered


@pytest.mark.parametrize(
    ("stopped", "kind", "message"),
    [
        (result(Stop.ROUNDS), RoundsExhausted, "1 tool rounds"),
        (result(Stop.FAILURES), ToolsFailed, "Error: no"),
        (result(Stop.EXHAUSTED, "step_missing"), StepsSkipped, "Not called yet: look_up"),
        (result(Stop.EXHAUSTED, "unknown_tool"), NoValidReply, "last defect: unknown tool"),
        (result(Stop.CANCELLED), RunCancelled, "canceled"),
    ],
)
def test_the_method_raise_for_stop_raises_an_exception_for_a_result_without_answer(
    stopped: RunResult[str], kind: type[RunStopped], message: str
) -> None:
    with pytest.raises(kind, match=message) as raised:
        stopped.raise_for_stop()
    assert raised.value.result is stopped
    error = raised.value
    assert (error.attempts, error.reply, error.pending) == (3, "f(1)", ("look_up",))
    assert error.completed == ("ask",)
    assert (error.tool, error.__cause__) == (("add", CAUSE) if kind is ToolsFailed else ("", None))


@pytest.mark.parametrize("stop", Stop)
def test_the_metadata_of_a_result_contains_its_stop_and_pending_steps(stop: Stop) -> None:
    stopped = result(stop, "")
    assert stopped.success is (stop in (Stop.ANSWERED, Stop.TERMINAL))
    assert stopped.iterations == stopped.metadata["iterations"] == 1
    assert stopped.metadata["stop"] == stop.value
    assert stopped.metadata["pending"] == ["look_up"]


def test_reported_usage_is_summed() -> None:
    first = UsageReported(
        {"prompt_tokens": 10, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 7}}
    )
    assert usage_of([first, first, UsageReported({})]) == Usage(3, 20, 4, 14)
    assert usage_of([]) == Usage()
