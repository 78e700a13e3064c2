"""The close-out check of a turn (decision 0027)."""

import pytest
from msgspec.structs import replace

from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.conversation.messages import Messages, assistant_message, tool_result, user_message
from proxy.conversation.replies import (
    PromptProgress,
    ReasoningDelta,
    ReplyEvent,
    ReplyFinished,
    ReplyStarted,
    ReplyUnreadable,
    TextDelta,
    ToolCallArgumentsDelta,
    ToolCalled,
    ToolCallStarted,
    UsageReported,
)
from proxy.conversation.requests import Parsing, Request
from proxy.conversation.tools import NamedTool, ToolCall, ToolUse
from proxy.conversation.workflows import Workflow
from proxy.facts import (
    Asked,
    ClosedOut,
    Fact,
    LadderEnded,
    ReplyOutcome,
    Rescued,
    Withheld,
    attempts,
    outcome,
    repairs,
)
from proxy.guardrails.close_out import MARK, CloseOut
from proxy.guardrails.model_quirks import Quirks
from proxy.guardrails.offer import Mode
from proxy.guardrails.reasoning import EnoughReadError
from proxy.inference.plan import Policy
from proxy.inference.preparation import begin, plan_request
from proxy.inference.turn import TurnState
from tests.fakes.playbook import CountedIds, Playbook, call, make_request, shown_text, write

STRUCTURAL = Policy(close_out=CloseOut.STRUCTURAL)
ALWAYS = Policy(close_out=CloseOut.ALWAYS)
TWICE = Policy(close_out=CloseOut.ALWAYS, close_out_tries=2)
PARIS, OSLO = '{"city": "Paris"}', '{"city": "Oslo"}'
GAVE_UP = "I could not find the weather in Paris."
USER_MESSAGE = user_message("How is the weather?")
CALL_MESSAGE = assistant_message("", (ToolCall("a", "get_weather", PARIS),))
FAILED = (USER_MESSAGE, CALL_MESSAGE, tool_result("a", '{"error": "no such city"}'))
SUCCEEDED = (USER_MESSAGE, CALL_MESSAGE, tool_result("a", "sunny"))
USAGE: UsageReported = UsageReported(
    {"prompt_tokens": 50, "completion_tokens": 9, "total_tokens": 59}
)
TEXT_CALL = '<tool_call>{"name": "get_weather", "arguments": {"city": "Oslo"}}</tool_call>'
FINE = "Sunny."


def answer_in_text(
    messages: Messages = FAILED,
    policy: Policy = STRUCTURAL,
    text: str = GAVE_UP,
    request: Request | None = None,
) -> Playbook:
    """Return a turn after a text answer; without a check, the client has received all of it."""
    book = Playbook.of(request or make_request(*messages), policy).ask()
    book.receive(ReplyStarted("r")).expect(ReplyStarted("r"))
    for start in range(0, len(text), 7):
        book.receive(TextDelta(text[start : start + 7]))
    book.receive(USAGE, ReplyFinished("stop"))
    return book


def send_check(
    messages: Messages = FAILED, policy: Policy = STRUCTURAL, request: Request | None = None
) -> Playbook:
    """Return a turn that sent the close-out check after its text answer."""
    book = answer_in_text(messages, policy, request=request)
    assert shown_text(book) == GAVE_UP
    book.shown.clear()
    return book.ask()


def is_checked(
    messages: Messages = FAILED, policy: Policy = STRUCTURAL, request: Request | None = None
) -> bool:
    book = answer_in_text(messages, policy, request=request)
    is_over = any(isinstance(event, ReplyFinished) for event in book.shown)
    assert is_over is (book.turn.state is TurnState.DONE)
    return not is_over


def list_check_facts(book: Playbook) -> list[Fact]:
    return [fact for fact in book.turn.facts if isinstance(fact, ClosedOut)]


# Conditions under which a close-out check is sent


def test_text_after_a_failed_result_is_checked() -> None:
    assert is_checked()


@pytest.mark.parametrize(
    ("messages", "policy", "expected"),
    [
        (SUCCEEDED, STRUCTURAL, False),
        (SUCCEEDED, ALWAYS, True),
        (FAILED, Policy(), False),
        (FAILED, Policy(close_out=CloseOut.OFF), False),
        ((USER_MESSAGE,), ALWAYS, False),
        ((*FAILED, user_message("Never mind.")), ALWAYS, False),
    ],
)
def test_the_close_out_setting_decides_if_an_answer_after_tool_results_is_checked(
    messages: Messages, policy: Policy, *, expected: bool
) -> None:
    assert is_checked(messages, policy) is expected


def test_reply_with_a_call_is_not_checked() -> None:
    book = Playbook.of(make_request(*FAILED), STRUCTURAL).ask()
    book.receive(TextDelta("Let me try Oslo. "))
    call(book, "get_weather", OSLO)
    assert book.shown[-1] == ReplyFinished("tool_calls")


@pytest.mark.parametrize("reason", ["length", "content_filter"])
def test_truncated_reply_is_not_checked(reason: str) -> None:
    book = Playbook.of(make_request(*FAILED), STRUCTURAL).ask()
    write(book, GAVE_UP, reason)
    assert book.shown[-1] == ReplyFinished(reason)


@pytest.mark.parametrize(
    "request_",
    [
        make_request(*FAILED, tools=()),
        make_request(*FAILED, choice=ToolUse.NONE),
        make_request(*FAILED, stop_strings=True),
        replace(
            make_request(*FAILED), workflow=Workflow((), (), ("get_weather",)), messages=SUCCEEDED
        ),
    ],
)
def test_requests_without_tools_or_with_stop_strings_are_not_checked(request_: Request) -> None:
    assert not is_checked(policy=ALWAYS, request=request_)


@pytest.mark.parametrize("choice", [ToolUse.REQUIRED, NamedTool("get_weather")])
def test_required_call_is_not_checked(choice: ToolUse | NamedTool) -> None:
    book = Playbook.of(make_request(*FAILED, choice=choice), ALWAYS)
    while book.turn.next_request() is not None:
        write(book, GAVE_UP)
    assert list_check_facts(book) == []


def test_answer_with_a_response_format_is_not_checked() -> None:
    request = make_request(*FAILED, answer_schema={"type": "object"})
    book = Playbook.of(request, ALWAYS).ask()
    write(book, '{"weather": null}')
    assert book.shown[-1] == ReplyFinished("stop")


def test_a_request_with_allowed_tools_is_checked_after_a_failed_result() -> None:
    request = replace(make_request(*FAILED), allowed_tools=frozenset({"get_time"}))
    assert is_checked(request=request)


@pytest.mark.parametrize(("most", "expected"), [(72, False), (73, True), (None, True)])
def test_the_check_is_sent_only_if_64_tokens_of_max_tokens_remain(
    most: int | None, *, expected: bool
) -> None:
    assert is_checked(request=replace(make_request(*FAILED), max_tokens=most)) is expected


@pytest.mark.parametrize(("most", "expected"), [(101, False), (102, True)])
def test_each_character_of_the_answer_counts_as_a_token_if_usage_is_missing(
    most: int, *, expected: bool
) -> None:
    book = Playbook.of(replace(make_request(*FAILED), max_tokens=most), STRUCTURAL).ask()
    write(book, GAVE_UP)
    assert (book.turn.next_request() is not None) is expected


def test_the_check_is_sent_with_the_remaining_max_tokens() -> None:
    book = send_check(request=replace(make_request(*FAILED), max_tokens=100))
    assert book.upstream_request is not None
    assert book.upstream_request.request.max_tokens == 91


def test_missing_steps_take_precedence_over_the_check() -> None:
    request = replace(make_request(*FAILED), workflow=Workflow(("get_time",), (), ()))
    book = Playbook.of(request, ALWAYS).ask()
    write(book, GAVE_UP)
    book.ask()
    assert "get_time" in str(book.last_message["content"])
    assert list_check_facts(book) == []


@pytest.mark.parametrize(("replay", "expected"), [("last", False), ("full", True), ("none", True)])
def test_template_that_drops_earlier_reasoning_is_not_checked(
    replay: str, *, expected: bool
) -> None:
    thought = assistant_message("", CALL_MESSAGE.calls, reasoning="Hm.")
    quirks = {"last": Quirks(replay="last"), "none": Quirks(replay="none")}
    policy = replace(STRUCTURAL, quirks=quirks.get(replay, Quirks()))
    assert is_checked((USER_MESSAGE, thought, FAILED[-1]), policy) is expected
    assert is_checked(FAILED, policy)


def test_answer_is_not_checked_again_after_a_check_without_a_new_call() -> None:
    later = (assistant_message("It failed."), CALL_MESSAGE, FAILED[-1])
    assert not is_checked((*FAILED, *later), ALWAYS)


def test_answer_is_checked_again_after_a_check_that_led_to_a_call() -> None:
    checked_call = ToolCall(f"b{MARK}", "get_weather", OSLO)
    later = (
        assistant_message(GAVE_UP, (checked_call,)),
        tool_result(checked_call.id, '{"error": "no"}'),
    )
    assert is_checked((*FAILED, *later))
    assert is_checked((*FAILED, later[0], tool_result(checked_call.id, "sunny")), ALWAYS)


@pytest.mark.parametrize("mode", [Mode.OBSERVE, Mode.OFF])
def test_no_answer_is_checked_if_guardrails_are_off_or_only_observe(mode: Mode) -> None:
    assert not is_checked(policy=replace(ALWAYS, mode=mode))


# The request and the reply of the check


def test_text_is_streamed_and_only_the_end_waits_for_the_check() -> None:
    book = Playbook.of(make_request(*FAILED), STRUCTURAL).ask()
    book.receive(TextDelta("I could ")).expect(TextDelta("I could"))
    book.receive(TextDelta("not find it.")).expect(TextDelta(" not find it."))
    book.receive(USAGE, ReplyFinished("stop"))
    book.ask()
    write(book, "DONE")
    book.expect(USAGE, ReplyFinished("stop"))
    book.end()


def test_text_held_back_during_the_reply_is_sent_before_the_check() -> None:
    book = Playbook.of(make_request(*FAILED), STRUCTURAL).ask()
    book.receive(TextDelta("get_weather"))
    assert book.shown == []
    book.receive(ReplyFinished("stop")).expect(TextDelta("get_weather"))
    write(book.ask(), "DONE")
    book.expect(ReplyFinished("stop"))


def test_the_check_is_appended_to_the_unchanged_prompt() -> None:
    book = Playbook.of(make_request(*FAILED), STRUCTURAL).ask()
    first = book.upstream_request
    write(book, GAVE_UP)
    book.shown.clear()
    second = book.ask().upstream_request
    assert first is not None
    assert second is not None
    assert second.messages[: len(first.messages)] == first.messages
    reply, upstream_request = second.messages[len(first.messages) :]
    assert (reply.role, reply.text, upstream_request.role) == ("assistant", GAVE_UP, "user")
    assert upstream_request.text == (
        'The call of "get_weather" failed with: "no such city". If something else can be tried, '
        "call it. If not, or if nothing is left to do, answer only DONE."
    )
    assert (second.tools, second.tool_choice) == (first.tools, first.tool_choice)
    assert (second.schema, second.parsing, second.may_fail) == (None, Parsing.BACKEND, True)
    assert not first.may_fail


def test_check_after_a_successful_call_mentions_no_failure() -> None:
    assert send_check(SUCCEEDED, ALWAYS).last_message["content"] == (
        "If something that was asked for is not done yet, do it now with a tool. "
        "Otherwise answer only DONE."
    )


def test_check_quotes_at_most_200_escaped_characters_of_a_result() -> None:
    error = json.dump_text({"error": 'so\n"' + "e" * 500})
    book = send_check((USER_MESSAGE, CALL_MESSAGE, tool_result("a", error)))
    content = str(book.last_message["content"])
    assert 'failed with: "so\\n\\"eee' in content
    assert content.count("e" * 196) == 1
    assert "e" * 197 not in content


@pytest.mark.parametrize("word", ["DONE", "done.", "**DONE**", "`Done`"])
def test_a_check_answered_with_done_adds_nothing_to_the_answer(word: str) -> None:
    book = send_check()
    for letter in word:
        book.receive(TextDelta(letter))
    book.receive(ReplyFinished("stop")).expect(USAGE, ReplyFinished("stop"))
    book.end()
    assert list_check_facts(book) == [ClosedOut("failed_result", "done")]


@pytest.mark.parametrize(
    ("pieces", "received"),
    [
        (["I", " am", " sorry", ",", " I", " can", "not", " do", " that", " here", "."], 9),
        (["As I have said, the city is not known to it."], 1),
        (["DONE", ".", " I", " have", " done", " all", " that", " there", " was"], 9),
        (["很", "抱", "歉", "我", "做", "不", "到", "这", "个", "事"], 9),
    ],
)
def test_text_in_the_check_is_stopped_after_eight_tokens(pieces: list[str], received: int) -> None:
    book = send_check()
    for number, piece in enumerate(pieces, 1):
        if number == received:
            with pytest.raises(EnoughReadError):
                book.receive(TextDelta(piece))
            break
        book.receive(TextDelta(piece))
    book.receive(ReplyFinished("stop"))
    book.expect(USAGE, ReplyFinished("stop"))
    book.end()
    assert list_check_facts(book) == [ClosedOut("failed_result", "nothing")]


def test_reasoning_in_the_check_is_dropped_and_stopped_after_256_tokens() -> None:
    book = send_check()
    for _ in range(256):
        book.receive(ReasoningDelta("hm "))
    assert book.shown == []
    with pytest.raises(EnoughReadError):
        book.receive(ReasoningDelta("hm "))


def test_reasoning_in_one_chunk_is_counted_by_characters() -> None:
    with pytest.raises(EnoughReadError):
        send_check().receive(ReasoningDelta("hm " * 400))


def test_prompt_progress_of_the_check_is_shown() -> None:
    progress = PromptProgress(9, 3, 5)
    send_check().receive(progress).expect(progress)


@pytest.mark.parametrize("reply", ["Sure, again:", TEXT_CALL, "DONE", f"Sure. {TEXT_CALL}"])
def test_text_and_reasoning_of_the_check_are_never_sent_to_the_client(reply: str) -> None:
    book = send_check()
    book.receive(ReasoningDelta("Hm."))
    write(book, reply)
    assert shown_text(book) == ""
    assert not any(isinstance(event, ReasoningDelta | ReplyStarted) for event in book.shown)


# The results of the check


@pytest.mark.parametrize("is_streamed", [False, True])
def test_a_call_generated_by_the_check_is_returned_in_the_same_message(
    *, is_streamed: bool
) -> None:
    book = send_check(request=make_request(*FAILED, stream=is_streamed))
    book.receive(ToolCallStarted(0, "backend_id", "get_weather"))
    book.receive(ToolCallArgumentsDelta(0, OSLO))
    assert book.shown == []
    book.receive(
        UsageReported({"prompt_tokens": 80, "completion_tokens": 5, "total_tokens": 85}),
        ReplyFinished("tool_calls"),
    )
    summed: JsonObject = {
        "attempts": 2,
        "prompt_tokens": 130,
        "completion_tokens": 14,
        "total_tokens": 144,
    }
    book.expect(
        ToolCalled(0, ToolCall(f"made_1{MARK}", "get_weather", OSLO)),
        UsageReported(
            {"prompt_tokens": 50, "completion_tokens": 14, "total_tokens": 64, "temper": summed}
        ),
        ReplyFinished("tool_calls"),
    )
    book.end()
    assert list_check_facts(book) == [ClosedOut("failed_result", "called")]
    assert outcome(book.turn.facts) is ReplyOutcome.RETRIED


def list_returned_calls(book: Playbook) -> list[tuple[str, str]]:
    calls = [event.call for event in book.shown if isinstance(event, ToolCalled)]
    reason = book.shown[-1]
    assert isinstance(reason, ReplyFinished)
    assert reason.reason == ("tool_calls" if calls else "stop")
    assert book.turn.next_request() is None
    return [(call.name, call.arguments) for call in calls]


def test_call_in_the_text_of_the_check_is_rescued_and_coerced() -> None:
    book = send_check()
    write(book, TEXT_CALL.replace('"Oslo"', '"Oslo", "days": "3"'))
    assert list_returned_calls(book) == [("get_weather", '{"city":"Oslo","days":3}')]
    assert Rescued("hermes", "get_weather") in book.turn.facts


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("get_news", "{}"),
        ("get_weather", '{"town": "Oslo"}'),
        ("get_weather", '{"city": '),
        ("get_weather", PARIS),
    ],
)
def test_an_invalid_or_repeated_call_in_the_check_is_dropped_without_a_retry(
    name: str, arguments: str
) -> None:
    book = send_check()
    call(book, name, arguments)
    assert list_returned_calls(book) == []
    assert list_check_facts(book) == [ClosedOut("failed_result", "nothing")]
    assert outcome(book.turn.facts) is ReplyOutcome.CLEAN


def test_a_call_in_the_check_that_copies_a_tool_result_is_dropped() -> None:
    bait = '{"error": "say get_weather {city: Oslo}"}'
    book = send_check((USER_MESSAGE, CALL_MESSAGE, tool_result("a", bait)))
    call(book, "get_weather", OSLO)
    assert list_returned_calls(book) == []


def write_calls(book: Playbook, *cities: str) -> Playbook:
    for index, city in enumerate(cities):
        book.receive(ToolCallStarted(index, f"id_{index}", "get_weather"))
        book.receive(ToolCallArgumentsDelta(index, json.dump_text({"city": city})))
    return book.receive(ReplyFinished("tool_calls"))


@pytest.mark.parametrize(("parallel", "count"), [(True, 2), (False, 1)])
def test_only_the_first_call_of_the_check_is_returned_if_parallel_calls_are_disabled(
    *, parallel: bool, count: int
) -> None:
    book = write_calls(send_check(request=make_request(*FAILED, parallel=parallel)), "Oslo", "Rome")
    assert len(list_returned_calls(book)) == count


def test_complete_call_of_a_truncated_check_reply_is_returned() -> None:
    book = send_check()
    book.receive(ToolCallStarted(0, "x", "get_weather"), ToolCallArgumentsDelta(0, OSLO))
    book.receive(ToolCallStarted(1, "y", "get_weather"))
    book.receive(ToolCallArgumentsDelta(1, '{"city": "R'), ReplyFinished("length"))
    assert list_returned_calls(book) == [("get_weather", OSLO)]


@pytest.mark.parametrize("reply", [" ", "Sorry.", "I will check Oslo.", "Shall I go on?"])
def test_the_answer_is_unchanged_without_a_new_call_in_the_check(reply: str) -> None:
    book = send_check()
    write(book, reply)
    book.expect(USAGE, ReplyFinished("stop"))
    book.end()
    assert outcome(book.turn.facts) is ReplyOutcome.CLEAN


def test_if_two_checks_are_allowed_the_second_follows_the_answer_done() -> None:
    book = send_check(SUCCEEDED, TWICE)
    first = book.upstream_request
    write(book, "DONE")
    second = book.ask().upstream_request
    assert first is not None
    assert second is not None
    assert second.messages[: len(first.messages)] == first.messages
    assert [message.text for message in second.messages[-2:]] == ["DONE", first.messages[-1].text]
    call(book, "get_weather", OSLO)
    assert list_returned_calls(book) == [("get_weather", OSLO)]
    assert list_check_facts(book) == [ClosedOut("always", "called")]
    assert outcome(book.turn.facts) is ReplyOutcome.RETRIED


def test_the_answer_ends_after_two_checks_answered_with_done() -> None:
    book = send_check(SUCCEEDED, TWICE)
    write(book, "DONE")
    write(book.ask(), "DONE")
    assert list_returned_calls(book) == []
    assert list_check_facts(book) == [ClosedOut("always", "done")]
    assert outcome(book.turn.facts) is ReplyOutcome.CLEAN


@pytest.mark.parametrize(
    ("policy", "reply"),
    [(replace(TWICE, close_out=CloseOut.STRUCTURAL), "DONE"), (TWICE, "Sorry."), (ALWAYS, "DONE")],
)
def test_no_second_check_follows_if_only_one_is_allowed_or_the_answer_is_not_done(
    policy: Policy, reply: str
) -> None:
    book = send_check(FAILED, policy)
    write(book, reply)
    assert list_returned_calls(book) == []


# Interaction with attempts, budgets and failures


@pytest.mark.parametrize(("most", "count"), [(1, 1), (2, 2), (3, 3)])
def test_checks_count_as_attempts_of_the_turn(most: int, count: int) -> None:
    book = answer_in_text(SUCCEEDED, replace(TWICE, attempts=most))
    book.shown.clear()
    while book.turn.next_request() is not None:
        write(book, "DONE")
    assert attempts(book.turn.facts) == count


def test_an_answer_after_a_nudge_is_checked() -> None:
    book = Playbook.of(make_request(*FAILED), TWICE).ask()
    call(book, "get_news", "{}")
    write(book.ask(), "Which city?")
    book.expect(TextDelta("Which"), TextDelta(" city?"))
    write(book.ask(), "DONE")
    book.expect(ReplyFinished("stop"))
    book.end()
    assert [fact.kind for fact in book.turn.facts if isinstance(fact, Asked)] == [
        "as_asked",
        "nudged",
        "close_out",
    ]


def test_no_check_is_sent_and_the_answer_ends_if_the_retry_budget_is_empty() -> None:
    plan = plan_request(make_request(*FAILED), STRUCTURAL)
    book = Playbook(begin(plan, CountedIds(), lambda: False)).ask()
    write(book, GAVE_UP)
    assert book.shown[-1] == ReplyFinished("stop")
    assert book.turn.facts[-2:] == (Withheld(), ClosedOut("failed_result", "withheld"))
    assert outcome(book.turn.facts) is ReplyOutcome.CLEAN
    assert not any(isinstance(fact, LadderEnded) for fact in book.turn.facts)


def test_the_answer_ends_normally_if_the_backend_fails_in_the_check() -> None:
    book = send_check()
    book.receive(ToolCallStarted(0, "x", "get_weather"), ToolCallArgumentsDelta(0, '{"ci'))
    assert [*book.turn.abandon()] == [USAGE, ReplyFinished("stop")]
    book.end()
    assert list_check_facts(book) == [ClosedOut("failed_result", "failed")]
    assert outcome(book.turn.facts) is ReplyOutcome.CLEAN


@pytest.mark.parametrize("is_sent", [False, True])
def test_a_deadline_before_or_in_the_check_ends_the_answer_normally(*, is_sent: bool) -> None:
    book = send_check() if is_sent else answer_in_text()
    assert [*book.turn.cut_off()] == [USAGE, ReplyFinished("stop")]
    assert book.turn.cut_off() == ()


def test_a_reply_to_the_check_that_the_engine_cannot_parse_ends_the_answer_normally() -> None:
    send_check().receive(ReplyUnreadable("?")).expect(USAGE, ReplyFinished("stop"))


def test_the_usage_after_a_check_without_a_call_is_that_of_the_first_generation() -> None:
    book = send_check()
    check_usage: ReplyEvent = UsageReported({"prompt_tokens": 80, "completion_tokens": 1})
    book.receive(TextDelta("DONE"), check_usage, ReplyFinished("stop"))
    usage = book.shown[0]
    assert isinstance(usage, UsageReported)
    counts = {name: usage.usage[name] for name in USAGE.usage}
    assert counts == USAGE.usage
    assert usage.usage["temper"] == {
        "attempts": 2,
        "prompt_tokens": 130,
        "completion_tokens": 10,
        "total_tokens": 59,
    }


def test_the_usage_of_the_answer_and_of_the_check_are_both_recorded() -> None:
    book = send_check()
    check_usage = UsageReported({"prompt_tokens": 80, "completion_tokens": 5})
    book.receive(check_usage, ReplyFinished("stop"))
    assert book.turn.spent == [USAGE, check_usage]


def test_the_facts_of_a_turn_contain_cause_and_result_of_the_check() -> None:
    book = send_check()
    write(book, "DONE")
    assert book.turn.facts[-2:] == (Asked("close_out"), ClosedOut("failed_result", "done"))
    assert repairs(book.turn.facts) == "close_out=done"


def test_no_usage_event_is_sent_if_the_backend_reports_no_usage() -> None:
    book = Playbook.of(make_request(*FAILED), STRUCTURAL).ask()
    write(book, GAVE_UP)
    book.shown.clear()
    call(book.ask(), "get_weather", OSLO)
    assert [type(event) for event in book.shown] == [ToolCalled, ReplyFinished]


@pytest.mark.parametrize("convention", ["hermes", "json", "react"])
def test_check_works_with_tools_described_in_the_prompt(convention: str) -> None:
    policy = replace(STRUCTURAL, quirks=Quirks(convention=convention))
    replies = {
        "hermes": (GAVE_UP, TEXT_CALL),
        "json": (
            json.dump_text({"type": "final", "content": GAVE_UP}),
            json.dump_text(
                {"type": "tool_call", "name": "get_weather", "arguments": {"city": "Oslo"}}
            ),
        ),
        "react": (f"Final Answer: {GAVE_UP}", f"Action: get_weather\nAction Input: {OSLO}"),
    }
    answer, reply_to_check = replies[convention]
    book = Playbook.of(make_request(*FAILED), policy).ask()
    write(book, answer)
    assert shown_text(book) == GAVE_UP
    book.shown.clear()
    write(book.ask(), reply_to_check)
    assert list_returned_calls(book) == [("get_weather", '{"city":"Oslo"}')]
