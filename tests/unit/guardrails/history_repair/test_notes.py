from proxy.guardrails.history_repair.notes import UNANSWERED, orphaned
from proxy.guardrails.transcript import completed_calls
from tests.fakes.histories import call, called, history, result


def test_a_call_that_was_never_answered_counts_as_failed() -> None:
    (completed,) = completed_calls(history(called(call("a")), result("a", UNANSWERED)))
    assert completed.has_failed


def test_an_orphan_is_introduced_by_its_tool_if_that_is_known() -> None:
    assert orphaned("look").startswith("Result of look, ")
    assert orphaned("").startswith("Result, ")
