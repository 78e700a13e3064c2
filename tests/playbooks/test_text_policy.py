"""Decisions about prose in replies to requests with tools, for each text policy."""

import pytest
from msgspec.structs import replace

from proxy.conversation.messages import assistant_message, tool_result, user_message
from proxy.conversation.replies import (
    ReasoningDelta,
    ReplyFinished,
    TextDelta,
    ToolCallArgumentsDelta,
    ToolCalled,
    ToolCallStarted,
    UsageReported,
)
from proxy.conversation.requests import Request
from proxy.conversation.tools import ToolCall, ToolUse
from proxy.conversation.workflows import Workflow
from proxy.facts import RejectedReply, ReplyOutcome, attempts, outcome, repairs
from proxy.guardrails.model_quirks import Quirks
from proxy.guardrails.offer import TextPolicy
from proxy.inference.plan import Policy
from tests.fakes.playbook import Playbook, call, make_request, shown_text, write

ACCEPT = Policy(text_policy=TextPolicy.ACCEPT)
RESPOND = Policy(text_policy=TextPolicy.RESPOND)
REQUIRE = Policy(text_policy=TextPolicy.REQUIRE)
PROMPTED = Policy(quirks=Quirks(convention="hermes"))
PROMPTED_WITHOUT_RESPOND = Policy(quirks=Quirks(convention="hermes", offers_respond=False))
PARIS = '{"city": "Paris"}'
ANSWER = "It is sunny in Paris, 20 degrees."
ANNOUNCED = "I'll check the weather in Paris."
TIME_ROUND = (assistant_message("", (ToolCall("a", "get_time", "{}"),)), tool_result("a", "noon"))
STEPS = Workflow(("get_time",), (), ("get_weather",))


def list_offered_tools(book: Playbook) -> list[str]:
    assert book.upstream_request is not None
    return [tool.name for tool in book.upstream_request.tools]


def nudge(book: Playbook) -> str:
    assert book.last_message["role"] == "user"
    return str(book.last_message["content"])


def announce_call(policy: Policy | None = None) -> Playbook:
    """Return a turn in which the model announced a call, and the nudge for it was sent."""
    book = Playbook.of(make_request(), policy).ask()
    write(book, ANNOUNCED)
    assert shown_text(book) == ANNOUNCED
    book.shown.clear()
    return book.ask()


@pytest.mark.parametrize(
    ("policy", "is_offered"),
    [(Policy(), False), (ACCEPT, False), (RESPOND, True), (REQUIRE, False)],
)
def test_the_respond_tool_is_offered_only_under_the_text_policy_respond(
    policy: Policy, is_offered: bool
) -> None:
    assert (
        "respond" in list_offered_tools(Playbook.of(make_request(), policy).ask())
    ) is is_offered


@pytest.mark.parametrize(
    ("policy", "is_named"), [(PROMPTED, True), (PROMPTED_WITHOUT_RESPOND, False)]
)
def test_a_prompt_that_describes_the_tools_also_describes_the_respond_tool(
    policy: Policy, *, is_named: bool
) -> None:
    book = Playbook.of(make_request(), policy).ask()
    assert book.upstream_request is not None
    assert ('"respond"' in book.upstream_request.messages[0].text) is is_named


@pytest.mark.parametrize("policy", [Policy(), PROMPTED, ACCEPT])
def test_a_text_answer_is_streamed_and_takes_one_generation(policy: Policy) -> None:
    book = Playbook.of(make_request(), policy).ask()
    book.receive(TextDelta("It is ")).expect(TextDelta("It is"))
    book.receive(TextDelta("sunny.")).expect(TextDelta(" sunny."))
    book.receive(UsageReported({"total_tokens": 9}))
    book.receive(ReplyFinished("stop"))
    book.expect(UsageReported({"total_tokens": 9}), ReplyFinished("stop"))
    book.end()
    assert outcome(book.turn.facts) is ReplyOutcome.CLEAN
    assert attempts(book.turn.facts) == 1


def test_under_the_text_policy_accept_an_announcement_without_its_call_is_the_answer() -> None:
    book = Playbook.of(make_request(), ACCEPT).ask()
    write(book, ANNOUNCED)
    assert shown_text(book) == ANNOUNCED
    assert book.shown[-1] == ReplyFinished("stop")


def test_a_reply_that_only_announces_a_call_is_followed_by_a_nudge_to_make_it() -> None:
    book = announce_call()
    assert book.upstream_request is not None
    reply, nudge_message = book.upstream_request.messages[-2:]
    assert (reply.role, reply.text) == ("assistant", ANNOUNCED)
    assert "call it now (get_weather, get_time)" in nudge_message.text
    assert "write DONE" in nudge_message.text
    call(book, "get_weather", PARIS)
    book.expect(ToolCalled(0, ToolCall("backend_id", "get_weather", PARIS)))
    book.expect(ReplyFinished("tool_calls"))
    book.end()
    assert outcome(book.turn.facts) is ReplyOutcome.RETRIED
    assert repairs(book.turn.facts) == "announced"


def test_text_of_the_second_reply_follows_a_blank_line() -> None:
    book = announce_call()
    write(book, ANSWER)
    book.expect(TextDelta(f"\n\n{ANSWER}"), ReplyFinished("stop"))
    book.end()


def test_text_before_the_call_of_the_second_reply_is_kept() -> None:
    book = announce_call()
    book.receive(TextDelta("Paris it is."))
    call(book, "get_weather", PARIS)
    book.expect(TextDelta("\n\nParis it is."))
    book.expect(ToolCalled(0, ToolCall("backend_id", "get_weather", PARIS)))
    book.expect(ReplyFinished("tool_calls"))


@pytest.mark.parametrize("repeated", [ANNOUNCED, "I'll really check it now.", "", "the weather in"])
def test_a_second_reply_without_the_announced_call_ends_the_turn(repeated: str) -> None:
    book = announce_call()
    write(book, repeated)
    book.expect(ReplyFinished("stop"))
    book.end()
    assert attempts(book.turn.facts) == 2


def test_two_announcements_or_two_empty_replies_are_reported_as_exhausted() -> None:
    book = announce_call()
    write(book, ANNOUNCED)
    assert outcome(book.turn.facts) is ReplyOutcome.EXHAUSTED
    book = Playbook.of(make_request()).ask()
    book.receive(ReplyFinished("stop"))
    book.ask()
    book.receive(ReplyFinished("stop"))
    assert "an empty reply" in shown_text(book)
    assert outcome(book.turn.facts) is ReplyOutcome.EXHAUSTED


def test_an_empty_respond_message_after_the_nudge_ends_the_turn() -> None:
    book = announce_call(PROMPTED)
    assert "call respond with an empty message" in nudge(book)
    call(book, "respond", '{"message": ""}')
    book.expect(ReplyFinished("stop"))
    book.end()


@pytest.mark.parametrize("word", ["DONE", "Done.", "**DONE**"])
def test_the_word_done_after_the_nudge_ends_the_turn_if_respond_is_not_offered(word: str) -> None:
    book = announce_call()
    assert "write DONE" in nudge(book)
    write(book, word)
    book.expect(ReplyFinished("stop"))
    book.end()


def test_the_text_of_a_respond_message_after_the_nudge_is_appended() -> None:
    book = announce_call(PROMPTED)
    call(book, "respond", '{"message": "No need, it is sunny."}')
    book.expect(TextDelta("\n\nNo need, it is sunny."), ReplyFinished("stop"))


def test_bad_call_after_an_announcement_is_retried() -> None:
    book = announce_call()
    call(book, "get_weather", "{}")
    book.ask()
    assert book.schema() is not None
    write(book, '{"name": "get_weather", "arguments": {"city": "Paris"}}')
    book.expect(ToolCalled(0, ToolCall("made_1", "get_weather", PARIS.replace(": ", ":"))))
    book.expect(ReplyFinished("tool_calls"))


UNCONSTRAINED = Policy(without=frozenset({"constrained"}))
NO_CITY, NO_TOOL = ("get_weather", "{}"), ("launch_rocket", "{}")


def reject_call(name: str, arguments: str, policy: Policy | None = None) -> Playbook:
    """Return a turn that has sent the model the error of its call."""
    return call(Playbook.of(make_request(), policy).ask(), name, arguments).ask()


@pytest.mark.parametrize(
    ("wrong", "reply"),
    [
        *((NO_CITY, reply) for reply in ("Sorry, it is sunny.", "DONE", ANNOUNCED, "")),
        *((NO_TOOL, reply) for reply in ("DONE", ANNOUNCED, "")),
    ],
)
def test_prose_after_a_rejected_call_is_followed_by_a_constrained_attempt(
    wrong: tuple[str, str], reply: str
) -> None:
    book = write(reject_call(*wrong), reply)
    book.shown.clear()
    book.ask()
    assert "get_weather" in str(book.schema())
    write(book, '{"name": "get_weather", "arguments": {"city": "Paris"}}')
    book.expect(ToolCalled(0, ToolCall("made_1", "get_weather", PARIS.replace(": ", ":"))))
    book.expect(ReplyFinished("tool_calls"))
    book.end()
    assert attempts(book.turn.facts) == 3


def test_constrained_attempt_allows_prose_after_a_rejected_call() -> None:
    book = write(reject_call(*NO_CITY), "Sorry, it is sunny.")
    assert shown_text(book) == "Sorry, it is sunny."
    book.shown.clear()
    book.ask()
    assert "call respond with an empty message" in nudge(book)
    assert "respond" not in list_offered_tools(book)
    write(book, '{"name": "respond", "arguments": {"message": ""}}')
    book.expect(ReplyFinished("stop"))
    book.end()


@pytest.mark.parametrize("wrong", [NO_CITY, ("get_weather", '{"city":')])
def test_constrained_attempt_allows_only_the_rejected_tool(
    wrong: tuple[str, str],
) -> None:
    book = call(reject_call(*wrong), "launch_rocket", "{}")
    book.ask()
    schema = str(book.schema())
    assert "get_weather" in schema
    assert "respond" in schema
    assert "get_time" not in schema


def test_constrained_attempt_allows_any_tool_after_unknown_names() -> None:
    book = call(reject_call(*NO_TOOL), "launch_rocket", "{}")
    book.ask()
    assert all(name in str(book.schema()) for name in ("get_weather", "get_time", "respond"))


def test_prose_after_a_call_of_an_unknown_tool_is_the_answer() -> None:
    book = write(reject_call(*NO_TOOL), "Sorry, it is sunny.")
    assert shown_text(book) == "Sorry, it is sunny."
    assert book.shown[-1] == ReplyFinished("stop")
    book.shown.clear()
    book.end()
    assert attempts(book.turn.facts) == 2


def test_a_question_to_the_user_after_a_rejected_call_is_the_answer() -> None:
    book = write(reject_call(*NO_CITY), "For **which city?**")
    assert book.shown[-1] == ReplyFinished("stop")
    assert attempts(book.turn.facts) == 2


@pytest.mark.parametrize("policy", [ACCEPT, UNCONSTRAINED])
def test_prose_after_a_rejected_call_is_returned_if_no_retries_remain(policy: Policy) -> None:
    book = write(reject_call(*NO_CITY, policy), "Sorry, it is sunny.")
    assert shown_text(book) == "Sorry, it is sunny."
    assert book.shown[-1] == ReplyFinished("stop")
    book.shown.clear()
    book.end()


def test_an_announcement_without_its_call_is_returned_if_only_one_attempt_is_allowed() -> None:
    book = Playbook.of(make_request(), Policy(attempts=1, is_strict=True)).ask()
    write(book, ANNOUNCED)
    assert book.shown[-1] == ReplyFinished("stop")
    book.shown.clear()
    book.end()
    assert outcome(book.turn.facts) is ReplyOutcome.CLEAN


def test_announcement_followed_by_its_call_is_not_retried() -> None:
    book = Playbook.of(make_request()).ask()
    book.receive(TextDelta(ANNOUNCED))
    call(book, "get_weather", PARIS)
    assert shown_text(book) == ANNOUNCED
    assert book.shown[-1] == ReplyFinished("tool_calls")
    assert attempts(book.turn.facts) == 1


def test_announcement_in_a_respond_message_is_retried_like_prose() -> None:
    book = Playbook.of(make_request(), PROMPTED).ask()
    call(book, "respond", f'{{"message": "{ANNOUNCED}"}}')
    assert shown_text(book) == ANNOUNCED
    book.shown.clear()
    book.ask()
    assert "call it now" in nudge(book)
    call(book, "get_weather", PARIS)
    book.expect(ToolCalled(0, ToolCall("backend_id", "get_weather", PARIS)))
    book.expect(ReplyFinished("tool_calls"))
    assert repairs(book.turn.facts) == "announced"


@pytest.mark.parametrize(
    ("policy", "message"), [(PROMPTED, "It is noon."), (PROMPTED, ""), (RESPOND, ANNOUNCED)]
)
def test_a_respond_message_ends_the_turn_except_an_announcement_under_the_policy_auto(
    policy: Policy, message: str
) -> None:
    book = Playbook.of(make_request(), policy).ask()
    call(book, "respond", f'{{"message": "{message}"}}')
    assert shown_text(book) == message
    book.shown.clear()
    book.end()
    assert outcome(book.turn.facts) is ReplyOutcome.CLEAN


def test_truncated_announcement_is_not_retried() -> None:
    book = Playbook.of(make_request()).ask()
    write(book, ANNOUNCED, "length")
    assert book.shown[-1] == ReplyFinished("length")


@pytest.mark.parametrize("policy", [Policy(), PROMPTED, RESPOND, REQUIRE])
def test_empty_reply_is_retried(policy: Policy) -> None:
    book = Playbook.of(make_request(), policy).ask()
    book.receive(ReplyFinished("stop"))
    book.ask()
    assert "empty" in nudge(book)


def test_under_the_text_policy_accept_an_empty_reply_is_the_answer() -> None:
    book = Playbook.of(make_request(), ACCEPT).ask()
    book.receive(ReplyFinished("stop")).expect(ReplyFinished("stop"))
    book.end()


def test_under_the_text_policy_respond_a_nudge_offers_an_empty_respond_message() -> None:
    book = Playbook.of(make_request(), RESPOND).ask()
    write(book, ANSWER)
    book.ask()
    assert "call it now (get_weather, get_time)" in nudge(book)
    assert "call respond with an empty message" in nudge(book)
    call(book, "respond", '{"message": ""}')
    book.expect(TextDelta(ANSWER), ReplyFinished("stop"))
    book.end()


def test_nudge_for_a_required_call_does_not_offer_to_write_done() -> None:
    book = Playbook.of(make_request(), REQUIRE).ask()
    write(book, ANSWER)
    book.ask()
    assert "complete" not in nudge(book)
    write(book, "DONE")
    book.ask()
    assert book.schema() is not None


@pytest.mark.parametrize("policy", [Policy(), ACCEPT, RESPOND])
def test_prose_before_a_required_step_is_not_sent_and_the_step_is_demanded(policy: Policy) -> None:
    for rules in (STEPS, Workflow(("get_time",))):
        book = Playbook.of(replace(make_request(), workflow=rules), policy).ask()
        write(book, ANSWER)
        book.ask()
        assert nudge(book) == "An answer comes too early. First call: get_time."
        call(book, "get_time", "{}")
        book.expect(ToolCalled(0, ToolCall("backend_id", "get_time", "{}")))
        book.expect(ReplyFinished("tool_calls"))
        book.end()
        assert RejectedReply("step_missing") in book.turn.facts


def test_a_respond_message_before_a_required_step_is_not_sent() -> None:
    book = Playbook.of(replace(make_request(), workflow=STEPS), RESPOND).ask()
    call(book, "respond", '{"message": "Done."}')
    book.ask()
    write(book, "Really done.")
    book.ask()
    schema = str(book.schema())
    assert "get_time" in schema
    assert "respond" not in schema
    assert "get_weather" not in schema
    write(book, '{"name": "get_time", "arguments": {}}')
    book.expect(ToolCalled(0, ToolCall("made_1", "get_time", "{}")), ReplyFinished("tool_calls"))


def test_answer_with_missing_steps_is_shown_after_the_last_attempt() -> None:
    book = Playbook.of(replace(make_request(), workflow=STEPS)).ask()
    for _ in range(2):
        write(book, ANSWER)
        book.ask()
    write(book, "No.")
    assert shown_text(book) == ANSWER
    assert outcome(book.turn.facts) is ReplyOutcome.EXHAUSTED


def test_prose_is_an_answer_after_the_required_steps() -> None:
    request = replace(make_request(user_message("Hi"), *TIME_ROUND), workflow=STEPS)
    book = Playbook.of(request).ask()
    book.receive(TextDelta("Noon.")).expect(TextDelta("Noon."))
    book.receive(ReplyFinished("stop")).expect(ReplyFinished("stop"))
    book.end()


def test_the_reasoning_of_two_attempts_is_separated_by_a_blank_line() -> None:
    book = Playbook.of(make_request()).ask()
    book.receive(ReasoningDelta("One.")).expect(ReasoningDelta("One."))
    write(book, ANNOUNCED)
    book.shown.clear()
    book.ask()
    book.receive(ReasoningDelta("Two.")).expect(ReasoningDelta("\n\nTwo."))


def begin_stream(request: Request, policy: Policy | None = None) -> Playbook:
    return Playbook.of(replace(request, stream=True), policy).ask()


def test_text_before_a_call_is_sent_before_the_call() -> None:
    for policy in (Policy(), RESPOND, ACCEPT, REQUIRE):
        book = begin_stream(make_request(), policy)
        book.receive(TextDelta("Let me see."), ToolCallStarted(0, "x", "get_weather"))
        book.receive(ToolCallArgumentsDelta(0, PARIS), ReplyFinished("tool_calls"))
        assert book.shown[0] == TextDelta("Let me see.")
        assert book.shown[1] == ToolCallStarted(0, "x", "get_weather")
        assert book.shown[-1] == ReplyFinished("tool_calls")


def test_required_call_is_streamed() -> None:
    book = begin_stream(make_request(choice=ToolUse.REQUIRED))
    book.receive(ToolCallStarted(0, "x", "get_weather"), ToolCallArgumentsDelta(0, '{"city": "'))
    book.expect(ToolCallStarted(0, "x", "get_weather"))
