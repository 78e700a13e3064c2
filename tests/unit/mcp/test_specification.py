from proxy.conversation.tools import ToolCall
from proxy.mcp.specification import LOST, ServerSpec, ToolCallResult
from proxy.tools.executor import Status


def test_the_repr_of_a_server_spec_contains_no_headers_arguments_or_variables() -> None:
    spec = ServerSpec("a", "http://h", {"x": "canary"}, ("x", "canary"), {"KEY": "canary"})
    assert "canary" not in repr(spec)


def test_the_transport_is_tcp_for_an_address_and_pipe_for_a_program() -> None:
    assert ServerSpec("a", "http://h").transport == "tcp"
    assert ServerSpec("a", command=("x",)).transport == "pipe"


CALL = ToolCall("1", "get", "{}")


def test_outcome_combines_a_tool_result_with_its_call_and_duration() -> None:
    outcome = ToolCallResult(LOST, Status.LOST, "connection_closed", is_counted=False).outcome(
        CALL, 0.5
    )
    assert (outcome.call, outcome.text, outcome.status) == (CALL, LOST, Status.LOST)
    assert (outcome.seconds, outcome.counted) == (0.5, False)
