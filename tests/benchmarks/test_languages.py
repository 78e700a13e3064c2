"""The same request in every language is the same one to the backend."""

import pytest

from benchmarks.load.languages import CHAT, LANGUAGES, Language
from benchmarks.load.replies import Behavior
from benchmarks.load.workloads import Workload
from proxy.api.dialects import all_dialects
from proxy.conversation.requests import Request
from proxy.dialects.dialect import Client


def read(language: Language, *, is_streamed: bool) -> Request:
    workload = Workload(Behavior("call"), is_streamed=is_streamed, language=language)
    front = all_dialects().of(language.path)
    return front.decode(workload.body, Client()).request


@pytest.mark.parametrize("name", LANGUAGES)
@pytest.mark.parametrize("is_streamed", [True, False])
def test_a_request_says_the_same_in_every_language(name: str, is_streamed: bool) -> None:
    asked = read(CHAT, is_streamed=is_streamed)
    told = read(LANGUAGES[name], is_streamed=is_streamed)
    assert [(one.role, one.text) for one in told.messages] == [
        (one.role, one.text) for one in asked.messages
    ]
    assert [one.calls for one in told.messages] == [one.calls for one in asked.messages]
    assert [(one.name, one.parameters) for one in told.tools] == [
        (one.name, one.parameters) for one in asked.tools
    ]
    assert (told.model, told.stream) == (asked.model, is_streamed)
