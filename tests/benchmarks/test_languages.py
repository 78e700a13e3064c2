"""The benchmark's request means the same to Temper in every dialect."""

import pytest

from benchmarks.load.languages import CHAT, DIALECTS, Dialect
from benchmarks.load.replies import Behavior
from benchmarks.load.workloads import Workload
from proxy.api.dialects import all_dialects
from proxy.conversation.requests import Request
from proxy.dialects.dialect import Client


def read(language: Dialect, *, is_streamed: bool) -> Request:
    workload = Workload(Behavior("call"), is_streamed=is_streamed, language=language)
    proxy = all_dialects().of(language.path)
    return proxy.decode(workload.body, Client()).request


@pytest.mark.parametrize("name", DIALECTS)
@pytest.mark.parametrize("is_streamed", [True, False])
def test_the_benchmark_request_is_decoded_equally_from_every_dialect(
    name: str, is_streamed: bool
) -> None:
    chat = read(CHAT, is_streamed=is_streamed)
    other = read(DIALECTS[name], is_streamed=is_streamed)
    assert [(message.role, message.text) for message in other.messages] == [
        (message.role, message.text) for message in chat.messages
    ]
    assert [message.calls for message in other.messages] == [
        message.calls for message in chat.messages
    ]
    assert [(tool.name, tool.parameters) for tool in other.tools] == [
        (tool.name, tool.parameters) for tool in chat.tools
    ]
    assert (other.model, other.stream) == (chat.model, is_streamed)
