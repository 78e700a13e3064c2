"""The fallback: one attempt with another model after all attempts of the first were rejected."""

import pytest

from proxy.context.compaction import Fitted
from proxy.conversation.replies import (
    ReasoningDelta,
    ReplyEvent,
    ReplyFinished,
    ReplyUnreadable,
    TextDelta,
    ToolCallArgumentsDelta,
    ToolCalled,
    ToolCallStarted,
    UsageReported,
)
from proxy.conversation.requests import Request
from proxy.conversation.tools import ToolCall, ToolUse
from proxy.errors import CallBrokeOff, GuardrailsExhausted
from proxy.facts import (
    BrokeOff,
    Compacted,
    FellBack,
    ReplyOutcome,
    Withheld,
    outcome,
)
from proxy.guardrails.model_quirks import Quirks
from proxy.guardrails.offer import TextPolicy
from proxy.inference.plan import Policy
from proxy.inference.preparation import begin, plan_request
from proxy.inference.turn import Turn, TurnState
from tests.fakes.playbook import (
    CountedIds,
    Playbook,
    call,
    make_request,
    prepare,
    shown_text,
    write,
)

BAD, GOOD = '{"town": 5}', '{"city": "Paris"}'
PARIS = ToolCall("backend_id", "get_weather", GOOD)
USAGE = UsageReported({"prompt_tokens": 50, "completion_tokens": 9, "total_tokens": 59})
BIG = Quirks(convention="hermes")


def prepare_fallback_turn(request: Request, policy: Policy | None = None) -> Turn:
    return prepare(request, policy or Policy(BIG), CountedIds())


def begin_with_fallback(request: Request | None = None, policy: Policy | None = None) -> Playbook:
    """A turn with a fallback, before its first request."""
    book = Playbook.of(request or make_request(), policy)
    book.turn.fallback_model = "big"
    return book


def use_up_attempts(
    request: Request | None = None, policy: Policy | None = None, *, has_fallback: bool = True
) -> Playbook:
    """A turn after three calls with invalid arguments."""
    book = begin_with_fallback(request, policy)
    if not has_fallback:
        book.turn.fallback_model = ""
    for _ in range(3):
        book.ask()
        call(book, "get_weather", BAD)
    return book


def send_to_fallback(request: Request | None = None, policy: Policy | None = None) -> Playbook:
    """A turn after the request to the fallback was sent."""
    book = use_up_attempts(request, policy)
    book.turn.hand_over(prepare_fallback_turn(request or make_request()))
    return book.ask()


def test_a_turn_with_a_fallback_waits_for_the_fallback_after_its_last_attempt() -> None:
    book = use_up_attempts()
    assert (book.turn.is_spent, book.turn.state) == (True, TurnState.SPENT)
    book.end()


def test_fallback_is_sent_the_client_conversation_formatted_for_its_profile() -> None:
    request = make_request()
    book = use_up_attempts()
    other = prepare_fallback_turn(request)
    expected = prepare_fallback_turn(request).next_request()
    book.turn.hand_over(other)
    book.ask()
    assert book.upstream_request == expected


def test_a_valid_call_of_the_fallback_is_returned() -> None:
    book = send_to_fallback()
    book.receive(ToolCallStarted(0, "backend_id", "get_weather"), ToolCallArgumentsDelta(0, GOOD))
    assert book.shown == []
    book.receive(USAGE, ReplyFinished("tool_calls"))
    assert book.shown[0] == ToolCalled(0, PARIS)
    assert book.shown[-1] == ReplyFinished("tool_calls")
    assert outcome(book.turn.facts) is ReplyOutcome.FALLBACK
    assert book.turn.facts[-1] == FellBack("big", "answered")


def test_usage_names_the_fallback_and_sums_both_models() -> None:
    book = begin_with_fallback()
    for _ in range(3):
        book.ask().receive(USAGE)
        call(book, "get_weather", BAD)
    book.turn.hand_over(prepare_fallback_turn(make_request()))
    book.ask().receive(USAGE)
    call(book, "get_weather", GOOD)
    usage = next(event.usage for event in book.shown if isinstance(event, UsageReported))
    assert usage["temper"] == {
        "attempts": 4,
        "prompt_tokens": 200,
        "completion_tokens": 36,
        "total_tokens": 236,
        "fallback": "big",
    }
    assert usage["total_tokens"] == 59


def test_usage_names_the_fallback_if_the_first_model_reports_no_usage() -> None:
    book = send_to_fallback()
    book.receive(USAGE)
    call(book, "get_weather", GOOD)
    usage = next(event.usage for event in book.shown if isinstance(event, UsageReported))
    assert usage["temper"] == {"attempts": 1, **USAGE.usage, "fallback": "big"}


def test_a_text_of_the_fallback_is_returned_after_invalid_calls_of_the_first_model() -> None:
    """The first model must correct its call. The fallback made no call, so its text is accepted."""
    book = send_to_fallback()
    write(book, "It is sunny.").expect(TextDelta("It is sunny."), ReplyFinished("stop"))
    book.end()


def test_the_text_of_the_fallback_is_sent_only_at_the_end_of_its_reply() -> None:
    book = send_to_fallback()
    book.receive(ReasoningDelta("Let me see."), TextDelta("It is "), TextDelta("sunny."))
    book.expect(ReasoningDelta("Let me see."))
    assert book.shown == []


def test_under_the_text_policy_respond_the_fallback_text_is_returned_without_a_nudge() -> None:
    request = make_request()
    policy = Policy(text_policy=TextPolicy.RESPOND)
    book = use_up_attempts(request, policy)
    book.turn.hand_over(prepare_fallback_turn(request, policy))
    write(book.ask(), "It is sunny.").expect(TextDelta("It is sunny."), ReplyFinished("stop"))
    assert outcome(book.turn.facts) is ReplyOutcome.FALLBACK


@pytest.mark.parametrize("reply", ["bad call", "announcement", "failed", "unreadable"])
def test_the_reply_of_the_first_model_is_returned_if_that_of_the_fallback_is_unusable(
    reply: str,
) -> None:
    without = use_up_attempts(has_fallback=False)
    book = send_to_fallback()
    match reply:
        case "bad call":
            call(book, "get_weather", BAD)
        case "announcement":
            write(book, "I will now call get_weather for Paris.")
        case "failed":
            book.receive(TextDelta("It is"))
            book.shown += book.turn.abandon()
        case _:
            book.receive(ReplyUnreadable("?"))
    assert book.shown == without.shown
    assert outcome(book.turn.facts) is ReplyOutcome.EXHAUSTED
    result = "failed" if reply == "failed" else "rejected"
    assert FellBack("big", result) in book.turn.facts


def test_an_unavailable_fallback_changes_only_the_reported_facts() -> None:
    without, book = use_up_attempts(has_fallback=False), use_up_attempts()
    book.shown += book.turn.settle("unavailable")
    assert book.shown == without.shown
    added = FellBack("big", "unavailable")
    assert [fact for fact in book.turn.facts if fact != added] == [*without.turn.facts]


def test_strict_mode_raises_only_for_an_unusable_reply_of_the_fallback() -> None:
    policy = Policy(is_strict=True)
    book = send_to_fallback(policy=policy)
    with pytest.raises(GuardrailsExhausted):
        call(book, "get_weather", BAD)
    assert book.turn.state is TurnState.DONE
    call(send_to_fallback(policy=policy), "get_weather", GOOD).expect(
        ToolCalled(0, PARIS), ReplyFinished("tool_calls")
    )


SHOWN: tuple[ReplyEvent, ...] = (
    ToolCallStarted(0, "backend_id", "get_weather"),
    ToolCallArgumentsDelta(0, '{"city": "Par'),
)


def send_to_fallback_with_open_call() -> Playbook:
    """A turn whose client has seen the beginning of a call, after the request to the fallback."""
    request = make_request(stream=True)
    book = begin_with_fallback(request).ask()
    book.receive(*SHOWN, ToolCallArgumentsDelta(0, 'is", "days": "x"}'))
    book.receive(ReplyFinished("tool_calls"))
    assert book.shown
    book.shown.clear()
    for _ in range(2):
        book.ask()
        call(book, "get_weather", BAD)
    book.turn.hand_over(prepare_fallback_turn(request))
    return book.ask()


def test_the_fallback_completes_a_partly_streamed_call_with_the_same_beginning() -> None:
    book = send_to_fallback_with_open_call()
    call(book, "get_weather", '{"city": "Paris", "days": 2}')
    assert isinstance(book.shown[0], ToolCallArgumentsDelta)
    assert book.shown[0].text.endswith("2}")
    assert book.shown[1:] == [ReplyFinished("tool_calls")]


def test_a_fallback_call_that_contradicts_a_partly_streamed_call_raises() -> None:
    book = send_to_fallback_with_open_call()
    with pytest.raises(CallBrokeOff):
        call(book, "get_weather", '{"city": "Oslo"}')
    assert BrokeOff("get_weather") in book.turn.facts
    assert FellBack("big", "rejected") in book.turn.facts


def test_a_fallback_call_is_sent_after_text_that_the_first_model_streamed() -> None:
    request = make_request(stream=True)
    book = begin_with_fallback(request).ask()
    book.receive(TextDelta("Let me look. "))
    call(book, "get_weather", BAD)
    assert shown_text(book) == "Let me look."
    book.shown.clear()
    for _ in range(2):
        book.ask()
        call(book, "get_weather", BAD)
    book.shown.clear()
    book.turn.hand_over(prepare_fallback_turn(request))
    call(book.ask(), "get_weather", GOOD)
    book.expect(ToolCalled(0, PARIS), ReplyFinished("tool_calls"))


def test_no_fallback_is_requested_if_the_retry_budget_is_empty() -> None:
    turn = prepare(make_request(), Policy(), CountedIds(), may_retry=lambda: False)
    turn.fallback_model = "big"
    book = Playbook(turn).ask()
    call(book, "get_weather", BAD)
    assert turn.state is TurnState.DONE
    assert Withheld() in turn.facts


def test_no_fallback_is_requested_if_the_server_of_the_first_model_fails() -> None:
    book = begin_with_fallback().ask()
    call(book, "get_weather", BAD)
    book.ask()
    assert book.turn.abandon() == ()
    assert FellBack("big", "failed") not in book.turn.facts


def test_no_fallback_is_requested_if_a_retry_fails_after_a_usable_text() -> None:
    book = begin_with_fallback().ask()
    write(book, "I will now call get_weather for Paris.")
    book.shown.clear()
    book.ask()
    book.shown += book.turn.abandon()
    assert book.turn.state is TurnState.DONE


def test_no_fallback_is_requested_after_an_accepted_reply() -> None:
    book = begin_with_fallback().ask()
    call(book, "get_weather", GOOD)
    assert book.turn.state is TurnState.DONE
    assert outcome(book.turn.facts) is ReplyOutcome.CLEAN


@pytest.mark.parametrize("is_sent", [False, True])
def test_deadline_ends_the_turn_with_the_answer_of_the_first_model(*, is_sent: bool) -> None:
    without = use_up_attempts(has_fallback=False)
    book = send_to_fallback() if is_sent else use_up_attempts()
    assert book.turn.cut_off() == without.shown
    assert FellBack("big", "failed" if is_sent else "unavailable") in book.turn.facts


def test_a_deadline_before_the_fallback_of_a_strict_turn_returns_nothing() -> None:
    book = use_up_attempts(policy=Policy(is_strict=True))
    assert book.turn.cut_off() == ()


def test_a_fallback_answer_that_violates_the_response_format_is_not_returned() -> None:
    request = make_request(tools=(), answer_schema={"type": "object", "required": ["city"]})
    book = begin_with_fallback(request)
    for _ in range(3):
        write(book.ask(), '{"town": 5}')
    assert book.turn.is_spent
    book.turn.hand_over(prepare_fallback_turn(request))
    book.ask().receive(TextDelta('{"city": '))
    assert book.shown == []
    book.receive(TextDelta('"Paris"}'), ReplyFinished("stop"))
    assert shown_text(book) == GOOD


def test_without_tools_the_reply_of_the_fallback_is_streamed() -> None:
    """Without tools and schema, only a reply that the engine could not parse is rejected."""
    request = make_request(tools=(), stream=True)
    book = begin_with_fallback(request, Policy(attempts=2))
    while not book.turn.is_spent:
        book.ask().receive(ReplyUnreadable("?"))
    book.turn.hand_over(prepare_fallback_turn(request))
    book.ask().receive(TextDelta("It is"))
    book.expect(TextDelta("It is"))
    assert book.turn.abandon() == ()
    assert FellBack("big", "failed") in book.turn.facts


def test_an_empty_reply_of_the_fallback_is_not_returned() -> None:
    request = make_request(choice=ToolUse.REQUIRED)
    without, book = use_up_attempts(request, has_fallback=False), use_up_attempts(request)
    book.turn.hand_over(prepare_fallback_turn(request))
    book.ask().receive(ReplyFinished("stop"))
    assert book.shown == without.shown


def test_the_reported_context_is_that_of_the_fallback_prompt() -> None:
    compacted = Compacted(
        tier=1, cleared=0, folded=0, epoch=1, sent=900, client=2000, window=1000, is_new=True
    )
    plan = plan_request(make_request(), Policy(BIG))
    other = begin(plan, CountedIds(), lambda: True, Fitted(plan.messages, compacted=compacted))
    book = use_up_attempts()
    book.turn.hand_over(other)
    assert [fact for fact in book.turn.facts if isinstance(fact, Compacted)] == [compacted]
