import asyncio
import logging

import pytest

from proxy.conversation.json import JsonObject
from proxy.mcp.confirmations import Confirmations, Decision, RequestConfirmations, Requester
from proxy.tools.executor import Status
from tests.fakes.tool_servers import served
from tests.timeouts import TIMEOUT_SECONDS

DELETE = served("s_delete", "search", "delete", needs_approval=True)
ANNA = Requester("anna", "abc-1", "req-1")


async def until_waiting(confirmations: Confirmations, many: int = 1) -> list[str]:
    while len(confirmations.pending) != many:  # noqa: ASYNC110 - there is no event to wait for
        await asyncio.sleep(0)
    return [pending.id for pending in confirmations.pending]


@pytest.mark.parametrize(
    ("allow", "decision"), [(True, Decision.ALLOWED), (False, Decision.REFUSED)]
)
async def test_a_second_answer_to_the_same_confirmation_is_rejected(
    *, allow: bool, decision: Decision
) -> None:
    confirmations = Confirmations()
    task = asyncio.create_task(confirmations.ask(DELETE, {"id": 7}, ANNA, TIMEOUT_SECONDS))
    (name,) = await until_waiting(confirmations)
    assert confirmations.answer(name, allow=allow, decided_by="a")
    assert not confirmations.answer(name, allow=not allow, decided_by="b")
    assert confirmations.pending == ()
    assert await task is decision


async def test_a_pending_call_has_its_escaped_arguments_and_its_remaining_seconds() -> None:
    now = 100.0
    confirmations = Confirmations(lambda: now)
    arguments: JsonObject = {"text": "\u202eevil\x1b" + "x" * 10_000}
    tool = served("odd", "search", "odd\nname", needs_approval=True)
    task = asyncio.create_task(confirmations.ask(tool, arguments, ANNA, 60.0))
    await until_waiting(confirmations)
    now = 115.04
    (call,) = confirmations.pending
    assert (call.server, call.tool, call.client, call.request) == (
        "search",
        r"odd\nname",
        "anna",
        "abc-1",
    )
    assert call.seconds_left == 45.0
    assert call.arguments == ('{\n  "text": "\\u202eevil\\u001b' + "x" * 10_000 + '"\n}')
    now = 1000.0
    assert confirmations.pending[0].seconds_left == 0.0
    task.cancel()
    await asyncio.wait((task,))


async def test_the_change_number_increases_when_a_call_starts_to_wait_or_is_answered() -> None:
    confirmations = Confirmations()
    task = asyncio.create_task(confirmations.ask(DELETE, {}, ANNA, TIMEOUT_SECONDS))
    (name,) = await until_waiting(confirmations)
    assert confirmations.number == 1
    assert not confirmations.answer("other", allow=True, decided_by="a")
    assert confirmations.number == 1
    confirmations.answer(name, allow=True, decided_by="a")
    await task
    assert confirmations.number == 2


async def test_a_decision_applies_only_to_equal_calls_of_the_same_request() -> None:
    confirmations = Confirmations()
    request_confirmations = RequestConfirmations(confirmations, ANNA, TIMEOUT_SECONDS)
    same = [
        asyncio.create_task(request_confirmations.ask(DELETE, arguments))  # type: ignore[arg-type]
        for arguments in ({"a": 1, "b": 2}, {"b": 2, "a": 1})
    ]
    (name,) = await until_waiting(confirmations)
    confirmations.answer(name, allow=True, decided_by="a")
    assert [await decision for decision in same] == [Decision.ALLOWED] * 2
    assert await request_confirmations.ask(DELETE, {"a": 1, "b": 2}) is Decision.ALLOWED
    others = (
        request_confirmations.ask(DELETE, {"a": 1.0, "b": 2}),
        request_confirmations.ask(DELETE, {"a": True, "b": 2}),
        request_confirmations.ask(
            served("x", "search", "drop", needs_approval=True), {"a": 1, "b": 2}
        ),
        request_confirmations.ask(
            served("x", "other", "delete", needs_approval=True), {"a": 1, "b": 2}
        ),
        RequestConfirmations(confirmations, ANNA, 9.0).ask(DELETE, {"a": 1, "b": 2}),
    )
    task = [asyncio.create_task(other) for other in others]
    for name in await until_waiting(confirmations, len(others)):
        confirmations.answer(name, allow=False, decided_by="a")
    assert [await decision for decision in task] == [Decision.REFUSED] * len(others)


async def test_after_a_timeout_an_equal_call_is_unanswered_without_another_confirmation() -> None:
    confirmations = Confirmations()
    request_confirmations = RequestConfirmations(confirmations, ANNA, 0.01)
    assert await request_confirmations.ask(DELETE, {}) is Decision.UNANSWERED
    assert await request_confirmations.ask(DELETE, {}) is Decision.UNANSWERED
    assert confirmations.number == 2


def test_a_refused_or_unanswered_call_gives_the_model_an_error_message() -> None:
    assert Decision.ALLOWED.refusal is None
    refused, unanswered = Decision.REFUSED.refusal, Decision.UNANSWERED.refusal
    assert refused is not None
    assert unanswered is not None
    assert "a person refused" in refused.text
    assert "got no answer" in unanswered.text
    assert refused.text.startswith("Error: ")
    assert unanswered.text.startswith("Error: ")
    assert {refused.status, unanswered.status} == {Status.REFUSED}
    assert (refused.error, unanswered.error) == ("refused", "unanswered")


async def test_waiting_calls_and_decisions_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "proxy.mcp.confirmations")
    confirmations = Confirmations()
    task = asyncio.create_task(confirmations.ask(DELETE, {"k": "v"}, ANNA, TIMEOUT_SECONDS))
    (name,) = await until_waiting(confirmations)
    confirmations.answer(name, allow=False, decided_by="anna from ::1")
    await task
    await confirmations.ask(DELETE, {}, ANNA, 0.01)
    waits = "a call of search.delete is waiting for approval at /ui (request req-1)"
    assert [
        record.getMessage() for record in caplog.records if record.name.startswith("proxy")
    ] == [
        waits,
        "a call of search.delete was refused by anna from ::1",
        waits,
        "search.delete: no decision in time; the call is refused",
    ]


async def test_a_call_above_the_limit_of_waiting_calls_is_unanswered() -> None:
    confirmations = Confirmations(most=2)
    task = [
        asyncio.create_task(confirmations.ask(DELETE, {"n": n}, ANNA, TIMEOUT_SECONDS))
        for n in range(3)
    ]
    names = await until_waiting(confirmations, 2)
    assert await task[2] is Decision.UNANSWERED
    for name in names:
        confirmations.answer(name, allow=True, decided_by="a")
    assert [await decision for decision in task[:2]] == [Decision.ALLOWED] * 2


@pytest.mark.fault("F102")
async def test_at_the_limit_a_call_of_a_second_client_displaces_the_latest_of_the_first() -> None:
    confirmations = Confirmations(most=2)
    task = [
        asyncio.create_task(confirmations.ask(DELETE, {"n": n}, ANNA, TIMEOUT_SECONDS))
        for n in range(2)
    ]
    await until_waiting(confirmations, 2)
    other = Requester("bert")
    task.append(asyncio.create_task(confirmations.ask(DELETE, {}, other, TIMEOUT_SECONDS)))
    assert await task[1] is Decision.UNANSWERED
    assert await confirmations.ask(DELETE, {}, ANNA, TIMEOUT_SECONDS) is Decision.UNANSWERED
    for name in await until_waiting(confirmations, 2):
        confirmations.answer(name, allow=True, decided_by="a")
    assert [await task[0], await task[2]] == [Decision.ALLOWED] * 2
