from msgspec.structs import replace

from proxy.facts import ReplyOutcome
from proxy.observability.record import AttemptRecord, RequestRecord, ToolRecord

FAILED = AttemptRecord("nudged", 5.0, 1.0, error="unavailable")
RECORD = RequestRecord(
    id="r",
    begun_at=0.0,
    seconds=10.0,
    status=200,
    queued=2.0,
    attempts=(AttemptRecord("as_asked", 3.0, 2.0, "prose"), FAILED),
    outcome=ReplyOutcome.EXHAUSTED,
)


def test_overhead_is_the_total_time_minus_queue_and_backend_time() -> None:
    assert RECORD.overhead == 10.0 - 2.0 - 2.0 - 1.0


def test_the_overhead_without_attempts_is_the_total_time_minus_queue_time() -> None:
    assert RequestRecord(id="r", begun_at=0, seconds=0.5, status=400).overhead == 0.5
    assert RequestRecord(id="r", begun_at=0, seconds=0.5, status=200, queued=0.6).overhead == 0.0


def test_the_error_of_a_failed_attempt_is_reported_only_if_no_answer_was_sent() -> None:
    assert RECORD.error is None
    failed = RequestRecord(id="r", begun_at=0, seconds=1, status=502, attempts=(FAILED,))
    assert failed.error == "unavailable"


def test_the_time_of_overlapping_tool_calls_is_subtracted_from_overhead_once() -> None:
    def tool(number: int, begun: float, seconds: float) -> ToolRecord:
        return ToolRecord("s", "t", "id", number, begun, seconds, "done")

    tools = (tool(1, 1.0, 1.0), tool(1, 1.5, 1.5), tool(2, 4.0, 0.5))
    record = RequestRecord(id="r", begun_at=0.0, seconds=5.0, status=200, tools=tools)
    assert record.overhead == 2.5
    waited = replace(tool(2, 4.0, 0.5), waited=1.0)
    assert replace(record, tools=(*tools[:2], waited)).overhead == 1.5
