"""The rules of order, read from the transcript: loops, rounds, steps and terminal tools."""

import pytest
from msgspec.structs import replace

from proxy.context.compaction import NoCompaction
from proxy.conversation import json
from proxy.conversation.messages import Message, assistant_message, tool_result, user_message
from proxy.conversation.replies import ReplyFinished, TextDelta, ToolCalled
from proxy.conversation.tools import ToolCall, ToolUse
from proxy.conversation.workflows import Prerequisite, Workflow
from proxy.facts import LoopNoticed, Outcome, RejectedReply, RoundsExceeded, outcome, repairs
from proxy.inference.preparation import Policy, begin, plan_request
from tests.fakes.playbook import Playbook, call, make_request, write

PARIS = '{"city": "Paris"}'

RAN = (
    assistant_message("", (ToolCall("a", "get_time", "{}"),)),
    tool_result("a", "noon"),
)


def test_a_model_that_goes_in_circles_is_warned_and_its_call_withheld() -> None:
    book = Playbook.of(make_request(user_message("Hi"), *RAN, *RAN, *RAN)).ask()
    assert book.last_message["role"] == "user"
    assert "not a tool result: The last 3 calls" in str(book.last_message["content"])
    call(book, "get_time", "{}")
    book.ask()
    assert book.last_message["role"] == "user"
    assert "get_time was not called again" in str(book.last_message["content"])
    call(book, "respond", '{"message": "It is noon."}')
    assert book.shown[-1] == ReplyFinished("stop")
    assert LoopNoticed("get_time", 3) in book.turn.facts
    assert "loop=get_time" in repairs(book.turn.facts)
    assert RejectedReply("loop") in book.turn.facts


def test_after_too_many_rounds_an_answer_without_tools_is_asked_for() -> None:
    policy = Policy(most_rounds=2, most_repeats=9)
    book = Playbook.of(make_request(user_message("Hi"), *RAN, *RAN), policy).ask()
    assert book.question is not None
    assert book.question.tool_choice is ToolUse.NONE
    assert [tool.name for tool in book.question.tools][-1] == "respond"
    assert "2 times in a row" in str(book.last_message["content"])
    book >> TextDelta("It is noon.") << TextDelta("It is noon.")
    book >> ReplyFinished("stop") << ReplyFinished("stop")
    book.end()
    assert RoundsExceeded(2) in book.turn.facts
    assert outcome(book.turn.facts) is Outcome.REPAIRED
    assert repairs(book.turn.facts) == "rounds=2"


@pytest.mark.parametrize("ran", [0, 2])
def test_in_the_last_turn_of_a_run_an_answer_is_asked_for_whatever_was_found(ran: int) -> None:
    plan = plan_request(make_request(user_message("Hi"), *RAN * ran), Policy())
    turn = begin(plan, lambda: "id", lambda: True, NoCompaction(), is_last=True)
    question = turn.next_question()
    assert question is not None
    assert question.tool_choice is ToolUse.NONE
    assert len(question.tools) == 3
    noted = ["2 times in a row, which is the limit" in question.messages[-1].text]
    assert noted == [ran > 0]
    assert RoundsExceeded(ran) in turn.facts


def test_a_client_that_demands_a_call_gets_it_however_many_rounds_there_were() -> None:
    policy = Policy(most_rounds=1)
    request = make_request(user_message("Hi"), *RAN, choice=ToolUse.REQUIRED)
    book = Playbook.of(request, policy).ask()
    assert book.question is not None
    assert book.question.tool_choice is ToolUse.REQUIRED


def test_a_terminal_tool_waits_for_the_required_steps_and_the_ladder_is_bounded() -> None:
    rules = Workflow(("get_time",), (), ("get_weather",))
    book = Playbook.of(replace(make_request(), workflow=rules)).ask()
    problems = []
    for _ in range(2):
        call(book, "get_weather", PARIS)
        book.ask()
        problems.append(str(book.last_message["content"]))
    assert problems[0] != problems[1]
    write(book, json.dump_text({"name": "get_weather", "arguments": {"city": "Paris"}}))
    book << ReplyFinished("stop")
    book.end()
    assert outcome(book.turn.facts) is Outcome.EXHAUSTED


def test_a_terminal_tool_may_be_called_after_the_required_steps() -> None:
    rules = Workflow(("get_time",), (), ("get_weather",))
    request = replace(make_request(user_message("Hi"), *RAN), workflow=rules)
    book = Playbook.of(request).ask()
    call(book, "get_weather", PARIS)
    book << ToolCalled(0, ToolCall("backend_id", "get_weather", PARIS))


def ran(name: str, arguments: str, result: str) -> tuple[Message, Message]:
    return assistant_message("", (ToolCall("a", name, arguments),)), tool_result("a", result)


def test_another_call_is_not_withheld_in_a_loop() -> None:
    book = Playbook.of(make_request(user_message("Hi"), *RAN, *RAN, *RAN)).ask()
    call(book, "get_weather", PARIS)
    book << ToolCalled(0, ToolCall("backend_id", "get_weather", PARIS))
    book << ReplyFinished("tool_calls")
    book.end()


def test_a_call_whose_result_changes_is_no_loop() -> None:
    history = [*ran("get_time", "{}", "noon"), *ran("get_time", "{}", "one"), *RAN]
    book = Playbook.of(make_request(user_message("Hi"), *history)).ask()
    assert book.last_message["role"] == "tool"
    call(book, "get_time", "{}")
    book << ToolCalled(0, ToolCall("backend_id", "get_time", "{}"))


def test_a_prerequisite_has_to_be_met_with_the_same_argument() -> None:
    rules = Workflow((), (Prerequisite("get_weather", "get_time", "city"),))
    history = ran("get_time", '{"city": "Rome"}', "noon")
    book = Playbook.of(replace(make_request(user_message("Hi"), *history), workflow=rules)).ask()
    call(book, "get_weather", PARIS)
    book.ask()
    assert "First call: get_time" in str(book.last_message["content"])
    call(book, "get_weather", '{"city": "Rome"}')
    book << ToolCalled(0, ToolCall("backend_id", "get_weather", '{"city": "Rome"}'))


def test_a_step_that_failed_was_not_taken() -> None:
    rules = Workflow(("get_time",), (), ("get_weather",))
    history = ran("get_time", "{}", "Error: no clock")
    book = Playbook.of(replace(make_request(user_message("Hi"), *history), workflow=rules)).ask()
    call(book, "get_weather", PARIS)
    book.ask()
    assert RejectedReply("step_missing") in book.turn.facts
