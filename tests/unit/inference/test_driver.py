import asyncio
from contextlib import aclosing

import pytest

from proxy.conversation.replies import (
    ReplyEvent,
    ReplyFinished,
    TextDelta,
    ToolCalled,
    ToolCallStarted,
)
from proxy.errors import BackendReplyInvalid, BackendUnavailable
from proxy.facts import Dropped, outcome
from proxy.guardrails.offer import TextPolicy
from proxy.inference.driver import run_turn
from proxy.inference.plan import Policy
from proxy.inference.turn import Turn
from tests.fakes.backend import ScriptedBackend, every
from tests.fakes.playbook import CountedIds, make_request, prepare


def make_turn() -> Turn:
    return prepare(make_request(), Policy(text_policy=TextPolicy.RESPOND), CountedIds())


def collect(turn: Turn, backend: ScriptedBackend) -> list[ReplyEvent]:
    async def run() -> list[ReplyEvent]:
        return await every(run_turn(turn, backend, {"x-request-id": "r"}))

    return asyncio.run(run())


def test_a_rejected_reply_is_followed_by_a_second_request() -> None:
    backend = ScriptedBackend(
        [
            [TextDelta("Prose."), ReplyFinished("stop")],
            [ToolCallStarted(0, "a", "get_time"), ReplyFinished("tool_calls")],
        ]
    )
    turn = make_turn()
    events = collect(turn, backend)
    assert events[-1] == ReplyFinished("tool_calls")
    assert backend.headers[0] == {"x-request-id": "r"}
    assert len(backend.upstream_requests) == backend.closed == 2
    assert outcome(turn.facts).value == "retried"


def test_a_backend_error_in_the_first_attempt_is_raised() -> None:
    backend = ScriptedBackend([[BackendUnavailable("scripted", "is down")]])
    with pytest.raises(BackendUnavailable):
        collect(make_turn(), backend)
    assert len(backend.upstream_requests) == 1


def test_the_earlier_answer_is_returned_if_a_retry_fails_with_a_backend_error() -> None:
    backend = ScriptedBackend(
        [[TextDelta("Prose."), ReplyFinished("stop")], [BackendUnavailable("scripted", "is down")]]
    )
    assert collect(make_turn(), backend) == [TextDelta("Prose."), ReplyFinished("stop")]


def test_an_endless_reply_ends_with_the_finish_reason_length() -> None:
    endless = BackendReplyInvalid("scripted", "sent a reply without an end", is_endless=True)
    backend = ScriptedBackend([[TextDelta("and on"), endless]])
    assert collect(make_turn(), backend) == [TextDelta("and on"), ReplyFinished("length")]


def test_a_reply_that_repeats_its_calls_is_stopped() -> None:
    call = TextDelta('<tool_call>{"name": "get_time", "arguments": {}}</tool_call>\n')
    backend = ScriptedBackend([[*[call] * 30, BackendUnavailable("scripted", "was not stopped")]])
    turn = make_turn()
    events = collect(turn, backend)
    assert [event.call.name for event in events if isinstance(event, ToolCalled)] == ["get_time"]
    assert events[-1] == ReplyFinished("tool_calls")
    assert Dropped("repeated_call") in turn.facts
    assert backend.closed == len(backend.upstream_requests) == 1


def test_an_endless_reply_without_content_raises_backend_reply_invalid() -> None:
    endless = BackendReplyInvalid("scripted", "sent a reply without an end", is_endless=True)
    with pytest.raises(BackendReplyInvalid):
        collect(make_turn(), ScriptedBackend([[endless]]))


async def test_closing_the_iterator_closes_the_upstream_request() -> None:
    backend = ScriptedBackend([[TextDelta("b"), TextDelta("c"), ReplyFinished("stop")]])
    turn = prepare(make_request(tools=()), Policy(), CountedIds())
    async with aclosing(run_turn(turn, backend, {"x-request-id": "r"})) as batches:
        assert await anext(batches) == [TextDelta("b")]
    assert backend.closed == 1
