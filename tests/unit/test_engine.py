import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field

import pytest

from proxy.backends.client import Health, Model
from proxy.conversation.replies import ReplyEvent, ReplyFinished, TextDelta, ToolCallStarted
from proxy.conversation.requests import Question
from proxy.engine import converse
from proxy.errors import BackendFailed, BackendUnavailable
from proxy.facts import outcome
from proxy.inference.preparation import Policy, prepare
from proxy.inference.turn import Turn
from tests.fakes.playbook import CountedIds, make_request


@dataclass
class Scripted:
    """A backend that plays one list of events per question; an error in it is raised."""

    scripts: list[list[ReplyEvent | BackendFailed]]
    questions: list[Question] = field(default_factory=list)
    closed: int = 0
    name: str = "scripted"

    async def ask(
        self, question: Question, headers: dict[str, str]
    ) -> AsyncGenerator[ReplyEvent, None]:
        assert headers == {"x-request-id": "r"}
        self.questions.append(question)
        try:
            for event in self.scripts[len(self.questions) - 1]:
                if isinstance(event, BackendFailed):
                    raise event
                yield event
        finally:
            self.closed += 1

    async def models(self) -> tuple[Model, ...]:
        return ()

    async def health(self) -> Health:
        return Health.READY


def make_turn() -> Turn:
    return prepare(make_request(), Policy(), CountedIds())


def collect(turn: Turn, backend: Scripted) -> list[ReplyEvent]:
    async def run() -> list[ReplyEvent]:
        return [event async for event in converse(turn, backend, {"x-request-id": "r"})]

    return asyncio.run(run())


def test_questions_are_put_until_the_turn_is_done() -> None:
    backend = Scripted(
        [
            [TextDelta("Prose."), ReplyFinished("stop")],
            [ToolCallStarted(0, "a", "get_time"), ReplyFinished("tool_calls")],
        ]
    )
    turn = make_turn()
    events = collect(turn, backend)
    assert events[-1] == ReplyFinished("tool_calls")
    assert len(backend.questions) == backend.closed == 2
    assert outcome(turn.facts).value == "retried"


def test_a_failing_first_attempt_is_the_clients_to_know() -> None:
    backend = Scripted([[BackendUnavailable("scripted", "is down")]])
    with pytest.raises(BackendUnavailable):
        collect(make_turn(), backend)
    assert len(backend.questions) == 1


def test_a_failing_later_attempt_falls_back_to_the_earlier_answer() -> None:
    backend = Scripted(
        [
            [TextDelta("Prose."), ReplyFinished("stop")],
            [BackendUnavailable("scripted", "is down")],
        ]
    )
    assert collect(make_turn(), backend) == [TextDelta("Prose."), ReplyFinished("stop")]


def test_closing_the_conversation_closes_the_question_upstream() -> None:
    backend = Scripted([[TextDelta("a"), TextDelta("b"), ReplyFinished("stop")]])
    turn = prepare(make_request(tools=()), Policy(), CountedIds())

    async def leave_early() -> None:
        async with aclosing(converse(turn, backend, {"x-request-id": "r"})) as events:
            assert await anext(events) == TextDelta("a")

    asyncio.run(leave_early())
    assert backend.closed == 1
