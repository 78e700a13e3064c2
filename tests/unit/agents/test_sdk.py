import httpx
import pytest
from openai.types.chat import ChatCompletionMessage

from proxy.agents.sdk import SdkRequests, is_over, plain
from proxy.context.tokens import TokenBook
from proxy.conversation.json import JsonObject

UNPARSED = "Failed to parse input at pos 12: <tool_call>"


def requests(engine: str, window: int | None = None) -> SdkRequests:
    return SdkRequests(engine, window, TokenBook())


class RefusedError(Exception):
    """The error of an SDK, as far as it matters: with the response."""

    def __init__(self, status: int, message: str) -> None:
        self.response = httpx.Response(status, json={"error": {"code": status, "message": message}})
        super().__init__("failed")


def test_a_message_of_an_sdk_is_written_without_what_it_does_not_say() -> None:
    message = ChatCompletionMessage(role="assistant", content="Hello.")

    assert plain(message) == {"role": "assistant", "content": "Hello."}
    assert plain({"a": None}) == {"a": None}
    with pytest.raises(TypeError, match="not NoneType"):
        plain(None)


@pytest.mark.parametrize(
    ("said", "is_whole"),
    [
        ({"choices": [{"message": {"content": "a"}}]}, True),
        ({"choices": [{"delta": {}, "finish_reason": "stop"}]}, True),
        ({"choices": [{"delta": {"content": "a"}, "finish_reason": None}]}, False),
        ({"choices": []}, False),
        ({"choices": [7]}, False),
        ({"usage": {}}, False),
    ],
)
def test_a_reply_is_over_with_a_message_or_a_reason(said: JsonObject, is_whole: bool) -> None:
    assert is_over(said) is is_whole


def test_only_what_a_llama_server_could_not_parse_is_unreadable() -> None:
    assert requests("llama-server").is_unreadable(RefusedError(500, UNPARSED))
    assert not requests("llama-server").is_unreadable(RefusedError(500, "out of memory"))
    assert not requests("llama-server").is_unreadable(RefusedError(400, UNPARSED))
    assert not requests("llama-server").is_unreadable(ConnectionError(UNPARSED))
    assert not requests("openai").is_unreadable(RefusedError(500, UNPARSED))
