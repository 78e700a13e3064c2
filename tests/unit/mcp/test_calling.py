from proxy.conversation.tools import ToolCall
from proxy.mcp.calling import LOST, Called, Ended
from proxy.tool_rounds.outcomes import Status

CALL = ToolCall("1", "get", "{}")


def test_an_end_becomes_the_outcome_of_its_call() -> None:
    outcome = Ended(LOST, Status.LOST, "connection_closed", is_counted=False).outcome(CALL, 0.5)
    assert (outcome.call, outcome.text, outcome.status) == (CALL, LOST, Status.LOST)
    assert (outcome.seconds, outcome.counted) == (0.5, False)


def test_what_is_recorded_of_a_call_says_when_it_ran() -> None:
    called = Called("search", "find", "1", "find", Status.DONE).ran(2.0, 0.5)
    assert (called.begun, called.seconds) == (2.0, 0.5)
