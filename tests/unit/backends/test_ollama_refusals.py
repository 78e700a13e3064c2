import pytest

from proxy.backends.ollama_refusals import is_unreadable, lacks_thinking, lacks_tools
from proxy.errors import BackendRefused

PARSER = "The model produced output that does not match the expected peg-native format"


def refusal(status: int, message: str) -> BackendRefused:
    return BackendRefused("http://host", status, message)


def test_a_model_without_tools_is_told_from_other_refusals() -> None:
    assert lacks_tools(refusal(400, "registry.ollama.ai/library/gemma:2b does not support tools"))
    assert not lacks_tools(refusal(400, '"gemma:2b" does not support chat'))
    assert not lacks_tools(refusal(500, "does not support tools"))


def test_a_model_that_does_not_think_is_told_from_other_refusals() -> None:
    assert lacks_thinking(refusal(400, '"gemma:2b" does not support thinking'))
    assert lacks_thinking(refusal(400, 'think value "high" is not supported for this model'))
    assert not lacks_thinking(refusal(400, "does not support tools"))
    assert not lacks_thinking(refusal(500, "does not support thinking"))


@pytest.mark.parametrize(
    "message",
    [
        f"llama-server chat error: map[code:500 message:{PARSER} type:server_error]",
        "Failed to parse input at pos 12: <tool_call>",
        'llama-server returned invalid tool call arguments for "look": unexpected end',
        "error parsing tool call: raw='{', err=unexpected end of JSON input",
    ],
)
def test_a_reply_that_no_parser_could_read_is_lost(message: str) -> None:
    assert is_unreadable(refusal(500, message))
    assert not is_unreadable(refusal(400, message))


def test_a_runner_that_died_lost_more_than_a_reply() -> None:
    assert not is_unreadable(refusal(500, "model runner has unexpectedly stopped"))
