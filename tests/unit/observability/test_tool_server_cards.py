import pytest

from proxy.observability.record import RequestRecord, ToolRecord
from proxy.observability.tool_server_cards import ServerCalls, ToolCalls


def record(*statuses: str, server: str = "search", error: str | None = None) -> RequestRecord:
    tools = tuple(
        ToolRecord(server, "find", str(place), 1, 0.0, 1.0, status, error)
        for place, status in enumerate(statuses)
    )
    return RequestRecord(id="r", begun_at=0.0, seconds=1.0, status=200, tools=tools)


def test_calls_are_counted_by_server_and_by_how_they_ended() -> None:
    calls = ToolCalls()
    calls.take(record("done", "failed", "timed_out", "lost", "cancelled", "refused"))
    calls.take(record("done", server="time"))
    calls.take(record())
    found = calls.of("search")
    assert (found.calls, found.failures, found.refused) == (6, 3, 1)
    assert calls.of("time") == ServerCalls(1)
    assert calls.of("unknown") == ServerCalls()


@pytest.mark.parametrize(
    ("status", "error", "told"),
    [
        ("failed", "tool_error", "find failed (tool_error)."),
        ("failed", "a\nb", r"find failed (a\nb)."),
        ("timed_out", None, "find gave no result in time."),
        ("lost", None, "find was lost as the server went away."),
        ("done", None, ""),
        ("refused", "refused", ""),
        ("cancelled", "cancelled", ""),
    ],
)
def test_the_last_failure_is_a_sentence(status: str, error: str | None, told: str) -> None:
    calls = ToolCalls()
    calls.take(record(status, error=error))
    assert calls.of("search").failure == told
