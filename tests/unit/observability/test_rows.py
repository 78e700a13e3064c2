import pytest
from msgspec.structs import replace

from proxy import facts
from proxy.context.prefix import PrefixBroken, Reread
from proxy.facts import ReplyOutcome
from proxy.observability.record import (
    RUNNING,
    WAITING,
    AttemptRecord,
    RequestRecord,
    RequestStage,
    Tokens,
    ToolRecord,
)
from proxy.observability.rows import AttemptRow, ServerCalls, ToolCalls, ToolRow, row_of
from proxy.observability.trace_context import TraceContext

RECORD = RequestRecord(
    id="r",
    client="anna",
    begun_at=1000.0,
    seconds=3.00004,
    status=200,
    model="m",
    service="default",
    backend="http://b",
    stream=True,
    queued=0.5,
    first_token=1.5,
    tokens=Tokens(100, 60, 7),
    attempts=(AttemptRecord("as_asked", 0.5, 1.0, "prose"),),
    facts=(facts.Rescued("hermes", "look"), facts.Compacted(0, 0, 0, 0, 100, 100, 512)),
    outcome=ReplyOutcome.REPAIRED,
    tools=(
        ToolRecord("files", "read", "1", 1, 1.0, 0.25, "done"),
        ToolRecord("files", "write", "2", 1, 2.0, 0.0, RUNNING),
    ),
    prefix_broken=PrefixBroken(3, "the user prompt changed"),
    reread=Reread(100, 60, 1.5, "client", "the user prompt changed"),
    trace=TraceContext(7, 1),
)


def test_all_fields_of_a_record_are_converted_to_a_row() -> None:
    row = row_of(RECORD, "abc-1")
    assert (row.id, row.request_id, row.client, row.phase) == ("abc-1", "r", "anna", "over")
    assert (row.seconds, row.status, row.outcome) == (3.0, 200, "repaired")
    assert row.repairs == ("A call of look written as text (hermes) was recognized.",)
    (attempt,) = row.attempts
    assert attempt == AttemptRow(
        "as_asked",
        0.5,
        1.0,
        "prose",
        None,
        "The client's request.",
        "The model answered in prose instead of calling a tool.",
    )
    assert row.tools == (
        ToolRow("files", "read", 1.0, 0.25, "done"),
        ToolRow("files", "write", 2.0, None, "running"),
    )
    assert row.context == facts.Compacted(0, 0, 0, 0, 100, 100, 512)
    assert row.cache == PrefixBroken(3, "the user prompt changed")
    assert row.reread == Reread(100, 60, 1.5, "client", "the user prompt changed")
    assert row.trace == f"{7:032x}"


def test_the_problem_of_a_row_is_the_escaped_error_message_or_empty() -> None:
    assert row_of(replace(RECORD, status=404, refusal="No\x1b[2J"), "a").problem == "No\\x1b[2J"
    assert row_of(RECORD, "a").problem == ""


def test_the_row_of_a_running_request_has_no_status() -> None:
    record = replace(RECORD, outcome=None, status=499, left="queued", facts=(), trace=None)
    row = row_of(record, "abc-1", phase=RequestStage.READING.value, progress=0.25)
    assert (row.phase, row.progress, row.status, row.left) == ("reading", 0.25, None, None)
    assert (row.context, row.trace) == (None, None)
    assert row_of(record, "abc-1").left == "queued"


def test_the_size_of_a_row_is_bounded_for_records_of_any_size() -> None:
    long = "\u202ex" * 500_000
    tools = (ToolRecord(long, long, long, 1, 0.0, 0.0, long),) * 1000
    attempts = (AttemptRecord("as_asked", 0.0, 0.0, long),) * 1000
    all_facts = tuple(facts.Coerced(long, f"{number}{long}") for number in range(200))
    broken, reread = PrefixBroken(0, long, long), Reread(100, 60, 1.0, "client", long)
    row = row_of(
        replace(
            RECORD,
            id=long,
            model=long,
            finish_reason=long,
            path=long,
            backend=long,
            tools=tools,
            attempts=attempts,
            facts=all_facts,
            prefix_broken=broken,
            reread=reread,
            client=long,
        ),
        "abc-1",
    )
    assert len(repr(row)) < 500_000
    assert "\u202e" not in repr(row.repairs) + row.request_id + (row.model or "")


def test_a_call_waiting_for_approval_has_no_duration() -> None:
    waiting = ToolRecord("search", "drop", "1", 1, 0.5, 0.0, WAITING)
    finished = ToolRecord("search", "drop", "2", 1, 2.5, 0.25, "done", waited=2.00004)
    row = row_of(replace(RECORD, tools=(waiting, finished)), "abc-1", phase="waiting_for_person")
    assert row.tools == (
        ToolRow("search", "drop", 0.5, None, "waiting"),
        ToolRow("search", "drop", 2.5, 0.25, "done", 2.0),
    )


def record(*statuses: str, server: str = "search", error: str | None = None) -> RequestRecord:
    tools = tuple(
        ToolRecord(server, "find", str(index), 1, 0.0, 1.0, status, error)
        for index, status in enumerate(statuses)
    )
    return RequestRecord(id="r", begun_at=0.0, seconds=1.0, status=200, tools=tools)


def test_tool_calls_are_counted_by_server_and_status() -> None:
    calls = ToolCalls()
    calls.count(record("done", "failed", "timed_out", "lost", "cancelled", "refused"))
    calls.count(record("done", server="time"))
    calls.count(record())
    counts = calls.of("search")
    assert (counts.calls, counts.failures, counts.refused) == (6, 3, 1)
    assert calls.of("time") == ServerCalls(1)
    assert calls.of("unknown") == ServerCalls()


@pytest.mark.parametrize(
    ("status", "error", "sentence"),
    [
        ("failed", "tool_error", "find failed (tool_error)."),
        ("failed", "a\nb", r"find failed (a\nb)."),
        ("timed_out", None, "find returned no result in time."),
        ("lost", None, "find was lost: the server disconnected."),
        ("done", None, ""),
        ("refused", "refused", ""),
        ("cancelled", "cancelled", ""),
    ],
)
def test_the_last_failure_of_a_server_is_described_in_a_sentence(
    status: str, error: str | None, sentence: str
) -> None:
    calls = ToolCalls()
    calls.count(record(status, error=error))
    assert calls.of("search").failure == sentence
