"""Rules about the order of calls: loops, limits of rounds, steps and terminal tools."""

import pytest
from msgspec.structs import replace

from proxy.conversation import json
from proxy.conversation.messages import Message, assistant_message, tool_result, user_message
from proxy.conversation.replies import (
    ReplyFinished,
    TextDelta,
    ToolCallArgumentsDelta,
    ToolCalled,
    ToolCallStarted,
)
from proxy.conversation.tools import ToolCall, ToolUse
from proxy.conversation.workflows import Prerequisite, Workflow
from proxy.facts import (
    FailuresNoticed,
    LoopNoticed,
    RejectedReply,
    ReplyOutcome,
    RoundsExceeded,
    RoundsMade,
    outcome,
    repairs,
)
from proxy.guardrails.offer import TextPolicy
from proxy.inference.plan import Policy
from proxy.inference.preparation import begin, plan_request
from tests.fakes.playbook import Playbook, call, make_request, shown_text, write

PARIS = '{"city": "Paris"}'

TIME_ROUND = (assistant_message("", (ToolCall("a", "get_time", "{}"),)), tool_result("a", "noon"))


def test_after_three_equal_rounds_the_model_is_warned_and_the_same_call_rejected() -> None:
    book = Playbook.of(
        make_request(user_message("Hi"), *TIME_ROUND, *TIME_ROUND, *TIME_ROUND)
    ).ask()
    assert book.last_message["role"] == "user"
    assert "not a tool result: The last 3 calls" in str(book.last_message["content"])
    call(book, "get_time", "{}")
    book.ask()
    assert book.last_message["role"] == "user"
    assert "get_time was not called again" in str(book.last_message["content"])
    write(book, "It is noon.")
    assert book.shown[-1] == ReplyFinished("stop")
    assert LoopNoticed("get_time", 3) in book.turn.facts
    assert "loop=get_time" in repairs(book.turn.facts)
    assert RejectedReply("loop") in book.turn.facts


def test_equal_rounds_before_a_new_user_message_are_no_loop() -> None:
    history = (
        *TIME_ROUND,
        *TIME_ROUND,
        *TIME_ROUND,
        assistant_message("It is noon."),
        user_message("And now?"),
    )
    book = Playbook.of(make_request(user_message("Hi"), *history)).ask()
    assert book.last_message["content"] == "And now?"
    call(book, "get_time", "{}")
    book.expect(ToolCalled(0, ToolCall("backend_id", "get_time", "{}")))
    book.expect(ReplyFinished("tool_calls"))


def test_system_reminders_between_equal_rounds_do_not_end_a_loop() -> None:
    # Claude Code sends notes as user messages after tool results.
    note = user_message("<system-reminder>\nThe list is empty.\n</system-reminder>")
    history = (*TIME_ROUND, note, *TIME_ROUND, note, *TIME_ROUND, note)
    book = Playbook.of(make_request(user_message("Hi"), *history)).ask()
    assert "not a tool result: The last 3 calls" in str(book.last_message["content"])
    call(book, "get_time", "{}")
    book.ask()
    write(book, "It is noon.")
    assert RejectedReply("loop") in book.turn.facts


def test_the_request_after_the_maximum_of_rounds_has_tool_choice_none() -> None:
    policy = Policy(most_rounds=2, most_repeats=9)
    book = Playbook.of(make_request(user_message("Hi"), *TIME_ROUND, *TIME_ROUND), policy).ask()
    assert book.upstream_request is not None
    assert book.upstream_request.tool_choice is ToolUse.NONE
    assert [tool.name for tool in book.upstream_request.tools] == ["get_weather", "get_time"]
    assert "2 times in a row" in str(book.last_message["content"])
    book.receive(TextDelta("It is noon.")).expect(TextDelta("It is noon."))
    book.receive(ReplyFinished("stop")).expect(ReplyFinished("stop"))
    book.end()
    assert RoundsExceeded(2) in book.turn.facts
    assert outcome(book.turn.facts) is ReplyOutcome.REPAIRED
    assert repairs(book.turn.facts) == "rounds=2"


@pytest.mark.parametrize(("ran", "noted"), [(49, None), (50, 50), (300, 300)])
def test_by_default_many_rounds_are_reported_but_change_nothing(
    ran: int, noted: int | None
) -> None:
    book = Playbook.of(make_request(user_message("Hi"), *make_rounds(ran))).ask()
    assert book.upstream_request is not None
    assert book.upstream_request.tool_choice is ToolUse.AUTO
    assert len(book.upstream_request.messages) == 1 + 2 * ran
    book.receive(TextDelta("Done.")).expect(TextDelta("Done."))
    book.receive(ReplyFinished("stop")).expect(ReplyFinished("stop"))
    noted_rounds = [fact.rounds for fact in book.turn.facts if isinstance(fact, RoundsMade)]
    assert noted_rounds == ([] if noted is None else [noted])
    assert outcome(book.turn.facts) is ReplyOutcome.CLEAN


def make_rounds(count: int) -> list[Message]:
    """Make rounds whose calls and results all differ."""
    return [
        message
        for number in range(count)
        for message in (
            assistant_message("", (ToolCall(f"c{number}", "get_time", "{}"),)),
            tool_result(f"c{number}", f"It is {number}."),
        )
    ]


@pytest.mark.parametrize("ran", [0, 2])
def test_the_last_turn_of_an_agent_run_has_tool_choice_none(ran: int) -> None:
    plan = plan_request(make_request(user_message("Hi"), *TIME_ROUND * ran), Policy())
    turn = begin(plan, lambda: "id", lambda: True, is_last=True)
    upstream_request = turn.next_request()
    assert upstream_request is not None
    assert upstream_request.tool_choice is ToolUse.NONE
    assert len(upstream_request.tools) == 2
    noted = ["2 times in a row, which is the limit" in upstream_request.messages[-1].text]
    assert noted == [ran > 0]
    assert RoundsExceeded(ran) in turn.facts


def test_required_call_is_made_after_any_number_of_rounds() -> None:
    policy = Policy(most_rounds=1)
    request = make_request(user_message("Hi"), *TIME_ROUND, choice=ToolUse.REQUIRED)
    book = Playbook.of(request, policy).ask()
    assert book.upstream_request is not None
    assert book.upstream_request.tool_choice is ToolUse.REQUIRED


def test_terminal_tool_before_required_steps_is_retried_twice() -> None:
    rules = Workflow(("get_time",), (), ("get_weather",))
    book = Playbook.of(replace(make_request(), workflow=rules)).ask()
    problems = []
    for _ in range(2):
        call(book, "get_weather", PARIS)
        book.ask()
        problems.append(str(book.last_message["content"]))
    assert problems[0] != problems[1]
    write(book, json.dump_text({"name": "get_weather", "arguments": {"city": "Paris"}}))
    assert "(get_weather)" in shown_text(book)
    book.shown.clear()
    book.end()
    assert outcome(book.turn.facts) is ReplyOutcome.EXHAUSTED


def test_a_terminal_tool_may_be_called_after_the_required_steps() -> None:
    rules = Workflow(("get_time",), (), ("get_weather",))
    request = replace(make_request(user_message("Hi"), *TIME_ROUND), workflow=rules)
    book = Playbook.of(request).ask()
    call(book, "get_weather", PARIS)
    book.expect(ToolCalled(0, ToolCall("backend_id", "get_weather", PARIS)))


def make_round(name: str, arguments: str, result: str) -> tuple[Message, Message]:
    return assistant_message("", (ToolCall("a", name, arguments),)), tool_result("a", result)


def test_a_call_of_another_tool_is_returned_despite_a_loop() -> None:
    book = Playbook.of(
        make_request(user_message("Hi"), *TIME_ROUND, *TIME_ROUND, *TIME_ROUND)
    ).ask()
    call(book, "get_weather", PARIS)
    book.expect(ToolCalled(0, ToolCall("backend_id", "get_weather", PARIS)))
    book.expect(ReplyFinished("tool_calls"))
    book.end()


def test_a_call_whose_result_changes_is_no_loop() -> None:
    history = [
        *make_round("get_time", "{}", "noon"),
        *make_round("get_time", "{}", "one"),
        *TIME_ROUND,
    ]
    book = Playbook.of(make_request(user_message("Hi"), *history)).ask()
    assert book.last_message["role"] == "tool"
    call(book, "get_time", "{}")
    book.expect(ToolCalled(0, ToolCall("backend_id", "get_time", "{}")))


def test_a_prerequisite_called_with_another_argument_does_not_count() -> None:
    rules = Workflow((), (Prerequisite("get_weather", "get_time", "city"),))
    history = make_round("get_time", '{"city": "Rome"}', "noon")
    book = Playbook.of(replace(make_request(user_message("Hi"), *history), workflow=rules)).ask()
    call(book, "get_weather", PARIS)
    book.ask()
    assert "First call: get_time" in str(book.last_message["content"])
    call(book, "get_weather", '{"city": "Rome"}')
    book.expect(ToolCalled(0, ToolCall("backend_id", "get_weather", '{"city": "Rome"}')))


def test_a_required_step_whose_call_failed_does_not_count() -> None:
    rules = Workflow(("get_time",), (), ("get_weather",))
    history = make_round("get_time", "{}", "Error: no clock")
    book = Playbook.of(replace(make_request(user_message("Hi"), *history), workflow=rules)).ask()
    call(book, "get_weather", PARIS)
    book.ask()
    assert RejectedReply("step_missing") in book.turn.facts


FAILED = make_round("get_weather", '{"city": "Pari"}', "Error: no such city")
FAILED_AGAIN = make_round("get_weather", '{"city": "Paaris"}', "Error: no such city")


def test_after_three_failed_rounds_a_note_tells_the_model() -> None:
    history = (*FAILED, *FAILED_AGAIN, *FAILED)
    book = Playbook.of(make_request(user_message("Hi"), *history)).ask()
    assert book.last_message["role"] == "user"
    assert "Every tool call of the last 3 rounds failed" in str(book.last_message["content"])
    call(book, "get_weather", PARIS)
    book.expect(ToolCalled(0, ToolCall("backend_id", "get_weather", PARIS)))
    book.expect(ReplyFinished("tool_calls"))
    book.end()
    assert FailuresNoticed(3) in book.turn.facts
    assert outcome(book.turn.facts) is ReplyOutcome.REPAIRED
    assert repairs(book.turn.facts) == "failures=3"


def test_a_note_is_added_only_after_the_configured_number_of_failed_rounds() -> None:
    for history in ((*FAILED, *FAILED_AGAIN), (*FAILED, *FAILED_AGAIN, *TIME_ROUND, *FAILED)):
        book = Playbook.of(make_request(user_message("Hi"), *history)).ask()
        assert book.last_message["role"] == "tool"
    book = Playbook.of(make_request(user_message("Hi"), *FAILED), Policy(most_failures=1)).ask()
    assert book.last_message["role"] == "user"


def test_repeated_failing_call_is_treated_as_a_loop() -> None:
    book = Playbook.of(make_request(user_message("Hi"), *FAILED, *FAILED, *FAILED)).ask()
    assert LoopNoticed("get_weather", 3) in book.turn.facts
    assert FailuresNoticed(3) not in book.turn.facts


def test_model_may_ask_the_user_for_a_missing_argument() -> None:
    book = Playbook.of(make_request(user_message("How is the weather?"))).ask()
    call(book, "get_weather", "{}")
    book.ask()
    assert str(book.last_message["content"]).endswith("do not guess: ask the user.")
    write(book, "For which city?")
    texts = [event.text for event in book.shown if isinstance(event, TextDelta)]
    assert "".join(texts) == "For which city?"
    assert book.shown[-1] == ReplyFinished("stop")


@pytest.mark.parametrize("rules", [Workflow(("get_time",)), Workflow(("get_time",), (), ("end",))])
def test_an_answer_before_a_required_step_is_not_returned(rules: Workflow) -> None:
    request = replace(make_request(stream=True), workflow=rules)
    book = Playbook.of(request, Policy(text_policy=TextPolicy.RESPOND)).ask()
    book.receive(TextDelta("It is "), TextDelta("noon."))
    call(book, "respond", '{"message": "It is noon."}')
    book.ask()
    assert "First call: get_time" in str(book.last_message["content"])
    call(book, "get_time", "{}")
    assert [event for event in book.shown if isinstance(event, TextDelta)] == []
    assert book.shown[-1] == ReplyFinished("tool_calls")


def test_calls_stream_while_a_step_is_required() -> None:
    request = replace(make_request(stream=True), workflow=Workflow(("get_time",)))
    book = Playbook.of(request).ask()
    book.receive(ToolCallStarted(0, "a", "get_weather"), ToolCallArgumentsDelta(0, '{"city": "'))
    book.expect(ToolCallStarted(0, "a", "get_weather"))
