import asyncio
import logging
from collections.abc import AsyncGenerator

import pytest

from proxy.api.exchange import Exchange, new_call_id
from proxy.api.streaming import Pace
from proxy.conversation import json
from proxy.conversation.replies import (
    ReplyEvent,
    ReplyFinished,
    ReplyStarted,
    TextDelta,
    UsageReported,
)
from proxy.conversation.requests import Question, Request
from proxy.errors import BackendUnavailable, TemperError
from proxy.inference.preparation import Policy, prepare
from proxy.observability.logs import RequestLog
from tests.fakes.asgi import HandMadeClient
from tests.fakes.backend import ScriptedBackend
from tests.fakes.playbook import CountedIds, make_request

USAGE: json.JsonObject = {
    "prompt_tokens": 7,
    "completion_tokens": 2,
    "total_tokens": 9,
    "prompt_tokens_details": {"cached_tokens": 5},
}
HELLO: list[ReplyEvent | TemperError] = [
    ReplyStarted("id", 5, "served"),
    TextDelta("Hello"),
    UsageReported(USAGE),
    ReplyFinished("stop"),
]


class SilentBackend(ScriptedBackend):
    """Never says a word."""

    async def ask(
        self, question: Question, headers: dict[str, str]
    ) -> AsyncGenerator[ReplyEvent, None]:
        del question, headers
        await asyncio.Event().wait()
        yield TextDelta("never")


def exchange(client: HandMadeClient, backend: ScriptedBackend, *, is_stream: bool) -> RequestLog:
    request = make_request(tools=())
    asked = Request(request.model, request.messages, request.fields, stream=is_stream)
    turn = prepare(asked, Policy(), CountedIds())
    one = Exchange(asked, turn, backend, Pace())

    async def run() -> None:
        await one.answer(client.scope, client.receive, client.send, {})

    asyncio.run(run())
    return recorded(one)


class Records(logging.Handler):
    """Keeps what is logged."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.kept.append(record)


def recorded(one: Exchange) -> RequestLog:
    """Return what an exchange writes into the log."""
    records = Records()
    logger = logging.getLogger("proxy")
    logger.addHandler(records)
    logger.setLevel(logging.INFO)
    try:
        one.record("req_1")
    finally:
        logger.removeHandler(records)
    logged = records.kept[0].__dict__["request"]
    assert isinstance(logged, RequestLog)
    return logged


@pytest.mark.parametrize("is_stream", [False, True])
def test_an_answer_is_recorded_with_what_it_cost(is_stream: bool) -> None:
    client = HandMadeClient()
    logged = exchange(client, ScriptedBackend([HELLO]), is_stream=is_stream)
    assert b"Hello" in client.answer
    assert (logged.id, logged.status, logged.stream) == ("req_1", 200, is_stream)
    assert (logged.prompt_tokens, logged.cached_tokens, logged.output_tokens) == (7, 5, 2)
    assert logged.first_token_ms is not None
    assert logged.attempts == 1


@pytest.mark.parametrize("is_stream", [False, True])
def test_a_failure_is_recorded_with_its_status(is_stream: bool) -> None:
    failure = BackendUnavailable("b", "is down")
    logged = exchange(HandMadeClient(), ScriptedBackend([[failure]]), is_stream=is_stream)
    assert logged.status == 502
    assert logged.first_token_ms is None
    assert logged.prompt_tokens is None


@pytest.mark.parametrize("is_stream", [False, True])
def test_a_client_that_left_is_recorded_as_such(is_stream: bool) -> None:
    client = HandMadeClient()
    client.leaves.set()
    assert exchange(client, SilentBackend(), is_stream=is_stream).status == 499


def test_what_the_backend_did_not_say_is_filled_in() -> None:
    client = HandMadeClient()
    backend = ScriptedBackend([[TextDelta("Hello"), ReplyFinished("stop")]])
    exchange(client, backend, is_stream=False)
    document = json.parse(client.answer)
    assert isinstance(document, dict)
    assert str(document["id"]).startswith("chatcmpl-")
    assert document["model"] == "test"


def test_call_ids_are_made_fresh() -> None:
    assert new_call_id() != new_call_id()
    assert new_call_id().startswith("call_")
