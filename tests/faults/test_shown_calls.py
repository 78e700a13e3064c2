"""F60: calls that fail after the client has received a part of them."""

from typing import cast

import pytest

from proxy.conversation import json
from proxy.conversation.json import JsonObject
from tests.fakes import sse
from tests.fakes.answers import Answer
from tests.fakes.scripted_backend import Ending, Script
from tests.fakes.sse import calls, says
from tests.faults.proxies import before
from tests.faults.requests import asks

pytestmark = pytest.mark.fault("F60")

BEGUN = sse.START + sse.call_delta("get_weather", '{"city": "Par')
GOOD = sse.call_delta("get_weather", '{"city": "Paris"}')
WRONG = calls("get_weather", '{"city": "Paris"', ', "days": "soon"}')
ELSEWHERE = calls("get_time", "{}")
ENOUGH = 4  # copies of a reply: more than Temper makes attempts


def arguments(answer: Answer) -> list[str]:
    return [str(cast("JsonObject", call["function"])["arguments"]) for call in answer.calls]


def is_half(text: str) -> bool:
    try:
        json.parse(text)
    except ValueError:
        return True
    return False


@pytest.mark.parametrize(
    "script",
    [
        Script((BEGUN, Ending.BREAKS)),
        Script((BEGUN,)),
        Script((BEGUN, sse.event({"error": {"message": "out of memory"}}))),
        Script((BEGUN, b"data: {]\n\n")),
    ],
    ids=["the connection breaks", "no end", "an error", "nonsense"],
)
async def test_a_backend_crash_during_a_streamed_call_is_an_error_event(
    *, subject: str, script: Script
) -> None:
    async with before(subject, *[script] * ENOUGH) as proxy:
        answer = await proxy.ask(asks(), stream=True)
    assert answer.error is not None
    assert answer.reason is None
    assert all(map(is_half, arguments(answer)))


@pytest.mark.parametrize("end", ["length", "content_filter"])
async def test_a_truncated_streamed_call_keeps_the_finish_reason_of_the_reply(
    *, subject: str, end: str
) -> None:
    async with before(subject, *[BEGUN + sse.end(end)] * ENOUGH) as proxy:
        answer = await proxy.ask(asks(), stream=True)
    assert answer.reason == end
    assert all(map(is_half, arguments(answer)))


async def test_a_truncated_second_call_ends_with_finish_reason_length(*, subject: str) -> None:
    second = sse.call_delta("get_weather", '{"city": "Ro', index=1, call_id="b")
    reply = sse.START + GOOD + second + sse.end("length")
    async with before(subject, *[reply] * ENOUGH) as proxy:
        answer = await proxy.ask(asks(), stream=True)
    assert answer.reason == "length"


async def test_a_retry_completes_a_streamed_call_whose_second_argument_was_invalid(
    *, subject: str
) -> None:
    right = calls("get_weather", '{"city": "Paris", "days": 3}')
    async with before(subject, WRONG, *[right] * ENOUGH) as proxy:
        answer = await proxy.ask(asks(), stream=True)
    assert answer.reason == "tool_calls"
    assert [json.parse(text) for text in arguments(answer)] == [{"city": "Paris", "days": 3}]


@pytest.mark.parametrize(
    "retry", [ELSEWHERE, says("I cannot."), WRONG], ids=["another call", "prose", "the same"]
)
async def test_a_streamed_call_ends_with_an_error_if_no_attempt_completes_it(
    *, subject: str, retry: bytes
) -> None:
    async with before(subject, WRONG, *[retry] * ENOUGH) as proxy:
        answer = await proxy.ask(asks(), stream=True)
    if (
        subject != "temper" and answer.error is None
    ):  # a peer that streams no incomplete call needs no error
        assert not any(map(is_half, arguments(answer)))
        return
    assert answer.error is not None
    assert answer.error["code"] == "call_broke_off"
    assert answer.reason is None


async def test_an_invalid_second_call_does_not_affect_the_streamed_first_call(
    *, subject: str
) -> None:
    bad = sse.call_delta("launch_rocket", "{}", index=1, call_id="b")
    reply = sse.START + GOOD + bad + sse.end("tool_calls")
    async with before(subject, *[reply] * ENOUGH) as proxy:
        answer = await proxy.ask(asks(), stream=True)
    assert answer.reason == "tool_calls"
    assert [json.parse(text) for text in arguments(answer)] == [{"city": "Paris"}]
