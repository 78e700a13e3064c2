"""A call in a syntax without a parser is hidden from the client, and retried once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.conversation.messages import user_message
from proxy.conversation.replies import ReplyFinished, TextDelta, ToolCalled
from proxy.conversation.tools import ToolCall
from proxy.facts import RejectedReply, ReplyOutcome, attempts, outcome, repairs
from proxy.guardrails.model_quirks import Quirks
from proxy.guardrails.offer import Mode, TextPolicy
from proxy.inference.plan import Policy
from tests.fakes.playbook import Playbook, call, make_request, shown_text, write
from tests.fakes.unread_calls import HELD, SEEN, TOOLS

HARMONY_CALL = HELD[0]
PARIS = '{"city": "Paris"}'
WITH_RESPOND = Policy(quirks=Quirks(convention="hermes"))


def send_retry(text: str = HARMONY_CALL, policy: Policy | None = None) -> Playbook:
    """Return a turn that received a call in an unknown syntax, and then sent the retry."""
    book = Playbook.of(make_request(tools=TOOLS), policy).ask()
    write(book, text)
    return book.ask()


@pytest.mark.parametrize("text", HELD)
def test_a_call_in_an_unknown_syntax_is_hidden_and_retried_with_a_nudge(text: str) -> None:
    book = send_retry(text)
    assert book.upstream_request is not None
    *before, nudge = book.upstream_request.messages
    assert not any(text in message.text for message in before)
    assert "in a form that is not read" in nudge.text
    assert "call it now (get_weather, get_time, search)" in nudge.text
    call(book, "get_weather", PARIS)
    book.expect(ToolCalled(0, ToolCall("backend_id", "get_weather", PARIS)))
    book.expect(ReplyFinished("tool_calls"))
    book.end()
    assert outcome(book.turn.facts) is ReplyOutcome.RETRIED
    assert "rejected=unknown_syntax" in repairs(book.turn.facts)


@pytest.mark.parametrize("text", SEEN)
def test_a_call_in_an_unknown_syntax_after_prose_is_sent_as_text_and_retried(text: str) -> None:
    book = Playbook.of(make_request(tools=TOOLS)).ask()
    write(book, text)
    book.shown.clear()
    book.ask()
    book.receive(TextDelta("Paris it is."))
    call(book, "get_weather", PARIS)
    book.expect(TextDelta("\n\nParis it is."))
    book.expect(ToolCalled(0, ToolCall("backend_id", "get_weather", PARIS)))
    book.expect(ReplyFinished("tool_calls"))


def test_answer_to_the_nudge_is_streamed() -> None:
    book = send_retry()
    book.receive(TextDelta("It is ")).expect(TextDelta("It is"))
    book.receive(TextDelta("sunny.")).expect(TextDelta(" sunny."))
    book.receive(ReplyFinished("stop")).expect(ReplyFinished("stop"))
    book.end()
    assert attempts(book.turn.facts) == 2


@pytest.mark.parametrize("policy", [Policy(), WITH_RESPOND])
def test_the_held_back_text_is_sent_if_the_model_confirms_that_it_answered(policy: Policy) -> None:
    book = send_retry(policy=policy)
    if policy is not WITH_RESPOND:
        book.receive(TextDelta("DO"), TextDelta("NE"), TextDelta("."), ReplyFinished("stop"))
    else:
        call(book, "respond", '{"message": ""}')
    book.expect(TextDelta(HARMONY_CALL), ReplyFinished("stop"))
    book.end()


def test_an_answer_to_the_nudge_is_sent_completely_even_if_it_begins_with_done() -> None:
    book = send_retry()
    book.receive(TextDelta("Done"))
    book.receive(TextDelta(" already.")).expect(TextDelta("Done"), TextDelta(" already."))


@pytest.mark.parametrize("again", [HARMONY_CALL, HELD[2], "I'll check the weather."])
def test_a_call_in_an_unknown_syntax_is_retried_only_once(again: str) -> None:
    book = send_retry()
    write(book, again)
    error = "The model gave no usable reply in 2 attempts: a call in an unknown syntax"
    text = shown_text(book)
    assert text.startswith(error if again in (HARMONY_CALL, HELD[2]) else again)
    assert text.count(again) == (again not in (HARMONY_CALL, HELD[2]))
    assert book.shown[-1] == ReplyFinished("stop")
    book.shown.clear()
    book.end()
    assert outcome(book.turn.facts) is ReplyOutcome.EXHAUSTED


def test_an_invalid_call_after_an_unknown_syntax_is_retried_with_a_constraint() -> None:
    book = send_retry()
    call(book, "get_weather", "{}")
    book.ask()
    assert book.schema() is not None


@pytest.mark.parametrize(
    "policy", [Policy(attempts=1), Policy(text_policy=TextPolicy.ACCEPT), Policy(mode=Mode.OFF)]
)
def test_without_retries_a_call_in_an_unknown_syntax_is_returned_as_text(policy: Policy) -> None:
    book = Playbook.of(make_request(), policy).ask()
    write(book, HARMONY_CALL)
    assert shown_text(book) == HARMONY_CALL
    assert book.shown[-1] == ReplyFinished("stop")


def test_in_observe_mode_a_call_in_an_unknown_syntax_is_returned_and_reported() -> None:
    book = Playbook.of(make_request(), Policy(mode=Mode.OBSERVE)).ask()
    book.receive(TextDelta(HARMONY_CALL)).expect(TextDelta(HARMONY_CALL))
    book.receive(ReplyFinished("stop")).expect(ReplyFinished("stop"))
    assert RejectedReply("unknown_syntax") in book.turn.facts


@pytest.mark.parametrize(
    ("reason", "user_text"),
    [("length", "How is the weather?"), ("stop", f"Repeat: {HARMONY_CALL}")],
)
def test_a_truncated_or_copied_call_in_an_unknown_syntax_is_returned_as_text(
    reason: str, user_text: str
) -> None:
    book = Playbook.of(make_request(user_message(user_text))).ask()
    write(book, HARMONY_CALL, reason)
    assert shown_text(book) == HARMONY_CALL
    assert book.shown[-1] == ReplyFinished(reason)


def test_a_call_in_an_unknown_syntax_that_quotes_the_user_is_returned_as_text() -> None:
    shown = f'<tools>{{"name": "get_weather", "arguments": {PARIS}}}</tools>'
    book = Playbook.of(make_request(user_message(f"Say: {shown}"), tools=TOOLS)).ask()
    write(book, shown)
    assert book.shown[-1] == ReplyFinished("stop")


def test_respond_message_is_an_answer_in_any_syntax() -> None:
    book = Playbook.of(make_request(), WITH_RESPOND).ask()
    call(book, "respond", '{"message": "get_weather{city: Paris}"}')
    assert book.shown[-1] == ReplyFinished("stop")
    assert outcome(book.turn.facts) is ReplyOutcome.CLEAN


@given(st.sampled_from(HELD), st.lists(st.integers(1, 9), max_size=30))
def test_a_call_in_an_unknown_syntax_is_recognized_in_any_chunking(
    text: str, sizes: list[int]
) -> None:
    book = Playbook.of(make_request(tools=TOOLS)).ask()
    position = 0
    for size in sizes:
        book.receive(TextDelta(text[position : position + size]))
        position += size
    book.receive(TextDelta(text[position:]), ReplyFinished("stop"))
    book.ask()
