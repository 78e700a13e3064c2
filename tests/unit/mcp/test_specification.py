from proxy.conversation.tools import ToolCall
from proxy.mcp.specification import LOST, ServerSpec, ToolCallResult
from proxy.tools.executor import Status


def test_a_server_reveals_no_secrets() -> None:
    spec = ServerSpec("a", "http://h", {"x": "canary"}, ("x", "canary"), {"KEY": "canary"})
    assert "canary" not in repr(spec)


def test_an_address_is_reached_by_tcp_and_a_program_by_a_pipe() -> None:
    assert ServerSpec("a", "http://h").transport == "tcp"
    assert ServerSpec("a", command=("x",)).transport == "pipe"


CALL = ToolCall("1", "get", "{}")


def test_an_end_becomes_the_outcome_of_its_call() -> None:
    outcome = ToolCallResult(LOST, Status.LOST, "connection_closed", is_counted=False).outcome(
        CALL, 0.5
    )
    assert (outcome.call, outcome.text, outcome.status) == (CALL, LOST, Status.LOST)
    assert (outcome.seconds, outcome.counted) == (0.5, False)
