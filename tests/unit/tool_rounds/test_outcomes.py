import pytest

from proxy.conversation.tools import ToolCall
from proxy.tool_rounds.outcomes import Outcome, Status

CALL = ToolCall("call_1", "add", "{}")


def test_an_outcome_is_a_message_that_answers_its_call() -> None:
    message = Outcome(CALL, "3").message
    assert (message.role, message.text, message.tool_call_id) == ("tool", "3", "call_1")


@pytest.mark.parametrize("status", Status)
def test_only_what_was_done_is_no_failure(status: Status) -> None:
    assert Outcome(CALL, "", status).is_failure is (status is not Status.DONE)
