"""Tools that the prompt describes by a convention; the client receives structured calls.

In the convention `json` (`CONTRACT` in this file), every reply is a JSON object. The final form is
the object of an answer:

    {"type": "final", "content": "It is noon."}
"""

import pytest
from msgspec.structs import replace

from proxy.conversation import json
from proxy.conversation.messages import assistant_message, tool_result, user_message
from proxy.conversation.replies import (
    ReasoningDelta,
    ReplyEvent,
    ReplyFinished,
    TextDelta,
    ToolCalled,
)
from proxy.conversation.tools import ToolCall, ToolUse
from proxy.facts import Asked, Dropped, RejectedReply, ReplyOutcome, Rescued, outcome
from proxy.guardrails.model_quirks import Quirks
from proxy.guardrails.offer import TextPolicy
from proxy.guardrails.tool_prompts.history import CONVENTIONS, find_convention
from proxy.inference.plan import Policy
from tests.fakes.arrivals import chunkings
from tests.fakes.playbook import Playbook, make_request, write

NAMES = [convention.name for convention in CONVENTIONS]
PARIS = '{"city": "Paris"}'
CALL = ToolCall("x", "get_weather", PARIS)
TIME_ROUND = (assistant_message("", (ToolCall("a", "get_time", "{}"),)), tool_result("a", "noon"))
FINAL = '{"type": "final", "content": "It is noon."}'


def with_convention(name: str) -> Policy:
    return Policy(quirks=Quirks(convention=name))


CONTRACT = with_convention("json")


def list_sent_texts(book: Playbook) -> list[str]:
    assert book.upstream_request is not None
    return [message.text for message in book.upstream_request.messages]


def answer(book: Playbook) -> str:
    return "".join(event.text for event in book.shown if isinstance(event, TextDelta))


@pytest.mark.parametrize("name", NAMES)
def test_a_call_written_in_the_convention_is_returned_as_a_structured_call(name: str) -> None:
    book = Playbook.of(make_request(), with_convention(name)).ask()
    assert book.upstream_request is not None
    assert book.upstream_request.tools == ()
    assert {"tools", "tool_choice"} <= book.upstream_request.omits
    write(book, find_convention(name).write_calls("", [CALL]))
    book.expect(ToolCalled(0, ToolCall("made_1", "get_weather", '{"city":"Paris"}')))
    book.expect(ReplyFinished("tool_calls"))
    book.end()


@pytest.mark.parametrize("name", NAMES)
def test_a_nudge_is_written_in_the_convention_and_appended_to_the_prompt(name: str) -> None:
    book = Playbook.of(make_request(), with_convention(name)).ask()
    before = list_sent_texts(book)
    write(book, find_convention(name).write_calls("", [ToolCall("x", "get_weather", "{}")]))
    book.ask()
    after = list_sent_texts(book)
    assert after[: len(before)] == before
    assert "/city" in after[-1]
    assert book.upstream_request is not None
    assert [message.role for message in book.upstream_request.messages[len(before) :]] == [
        "assistant",
        "user",
    ]
    write(book, find_convention(name).write_calls("", [CALL]))
    assert [type(event) for event in book.shown] == [ToolCalled, ReplyFinished]
    assert outcome(book.turn.facts) is ReplyOutcome.RETRIED


@pytest.mark.parametrize("name", NAMES)
def test_the_third_attempt_is_constrained_although_the_upstream_request_has_no_tools(
    name: str,
) -> None:
    book = Playbook.of(make_request(), with_convention(name)).ask()
    for _ in range(2):
        write(book, find_convention(name).write_calls("", [ToolCall("x", "get_weather", "{}")]))
        book.ask()
    assert book.schema() is not None
    write(book, json.dump_text({"name": "get_weather", "arguments": {"city": "Paris"}}))
    assert [type(event) for event in book.shown] == [ToolCalled, ReplyFinished]


@pytest.mark.parametrize("policy", [TextPolicy.RESPOND, TextPolicy.ACCEPT])
def test_an_answer_in_the_final_form_is_returned_as_plain_text(policy: TextPolicy) -> None:
    book = Playbook.of(make_request(), replace(CONTRACT, text_policy=policy)).ask()
    write(book, FINAL)
    assert answer(book) == "It is noon."
    assert book.shown[-1] == ReplyFinished("stop")
    assert Asked("as_asked") in book.turn.facts
    assert Rescued("json_contract", "respond") in book.turn.facts


def test_the_content_of_the_final_form_is_streamed_while_it_arrives() -> None:
    book = Playbook.of(make_request(), CONTRACT).ask()
    book.receive(TextDelta('{"type": "final", "content": "It is '))
    assert answer(book) == "It is "
    book.receive(TextDelta('no\\u006fn."'))
    assert answer(book) == "It is noon."


def test_prompt_for_a_required_call_does_not_describe_the_final_form() -> None:
    book = Playbook.of(make_request(choice=ToolUse.REQUIRED), CONTRACT).ask()
    assert '"final"' not in list_sent_texts(book)[0]
    write(book, FINAL)
    book.ask()
    assert RejectedReply("prose") in book.turn.facts


def test_the_final_form_becomes_plain_text_if_tool_choice_is_none() -> None:
    book = Playbook.of(make_request(choice=ToolUse.NONE), CONTRACT).ask()
    assert '"final"' in list_sent_texts(book)[0]
    write(book, FINAL)
    assert answer(book) == "It is noon."


def test_a_call_of_the_convention_is_retried_if_tool_choice_is_none() -> None:
    book = Playbook.of(make_request(choice=ToolUse.NONE), CONTRACT).ask()
    write(book, find_convention("json").write_calls("", [CALL]))
    book.ask()
    assert RejectedReply("unknown_tool") in book.turn.facts
    write(book, "Noon.").expect(TextDelta("Noon."), ReplyFinished("stop"))


def test_the_final_form_becomes_plain_text_after_too_many_rounds() -> None:
    request = make_request(user_message("Hi"), *TIME_ROUND, *TIME_ROUND)
    book = Playbook.of(request, replace(CONTRACT, most_rounds=2)).ask()
    write(book, FINAL)
    assert answer(book) == "It is noon."


def test_the_final_form_is_not_described_if_the_request_has_a_response_format() -> None:
    book = Playbook.of(make_request(answer_schema=True), CONTRACT).ask()
    assert '"final"' not in list_sent_texts(book)[0]
    write(book, FINAL).expect(TextDelta(FINAL), ReplyFinished("stop"))
    book.end()


REACT = with_convention("react")
ACTION = find_convention("react").write_calls("A tool will know.", [CALL])
FINAL_ANSWER = "Thought: Now I know.\nFinal Answer: It is noon.\n"
WEATHER_CALLED = ToolCalled(0, ToolCall("made_1", "get_weather", '{"city":"Paris"}'))


def read_reply(pieces: list[str], policy: Policy) -> tuple[str, str, list[ReplyEvent]]:
    """Return the reasoning, the text and the other events that the client receives."""
    book = Playbook.of(make_request(), policy).ask()
    for piece in pieces:
        book.receive(TextDelta(piece))
    book.receive(ReplyFinished("stop"))
    thoughts = "".join(event.text for event in book.shown if isinstance(event, ReasoningDelta))
    other_events: list[ReplyEvent] = []
    other_events += (
        event for event in book.shown if not isinstance(event, ReasoningDelta | TextDelta)
    )
    return thoughts, answer(book), other_events


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (FINAL_ANSWER, ("Now I know.", "It is noon.", [ReplyFinished("stop")])),
        (ACTION, ("A tool will know.", "", [WEATHER_CALLED, ReplyFinished("tool_calls")])),
        (
            f"{ACTION}\nObservation: sunny\nThought: Good.\nFinal Answer: Sunny.",
            ("A tool will know.", "", [WEATHER_CALLED, ReplyFinished("tool_calls")]),
        ),
        ("It is noon.", ("", "It is noon.", [ReplyFinished("stop")])),
    ],
)
@pytest.mark.parametrize("policy", [REACT, replace(REACT, text_policy=TextPolicy.ACCEPT)])
def test_react_labels_are_removed_from_text_and_reasoning(
    policy: Policy, reply: str, expected: tuple[str, str, list[ReplyEvent]]
) -> None:
    for pieces in chunkings(reply):
        assert read_reply(pieces, policy) == expected


def test_labeled_reasoning_and_final_answer_are_streamed() -> None:
    book = Playbook.of(make_request(), REACT).ask()
    book.receive(TextDelta("Thought: Now")).expect(ReasoningDelta("Now"))
    book.receive(TextDelta(" I know.\nFinal Answer: It is")).expect(ReasoningDelta(" I know."))
    book.expect(TextDelta("It is"))


def test_react_request_stops_before_an_invented_observation() -> None:
    book = Playbook.of(make_request(), REACT).ask()
    assert book.upstream_request is not None
    assert book.upstream_request.stops == ("\nObservation:",)
    plain = Playbook.of(make_request(), with_convention("hermes")).ask()
    assert plain.upstream_request is not None
    assert plain.upstream_request.stops == ()


def test_a_react_action_whose_input_is_no_object_is_retried() -> None:
    book = Playbook.of(make_request(), REACT).ask()
    write(book, "Action: get_weather\nAction Input: Paris")
    book.ask()
    assert '"Final Answer:" and what you say behind it' in list_sent_texts(book)[-1]
    write(book, ACTION)
    assert WEATHER_CALLED in book.shown


def test_label_is_removed_from_an_answer_with_a_response_format() -> None:
    book = Playbook.of(make_request(answer_schema={"type": "object"}), REACT).ask()
    assert "Final Answer" not in list_sent_texts(book)[0]
    write(book, 'Thought: So.\nFinal Answer: {"time": "noon"}')
    assert answer(book) == '{"time": "noon"}'


def test_final_answer_is_rejected_for_a_required_call() -> None:
    book = Playbook.of(make_request(choice=ToolUse.REQUIRED), REACT).ask()
    write(book, FINAL_ANSWER)
    assert answer(book) == ""
    assert RejectedReply("prose") in book.turn.facts
    assert book.turn.next_request() is not None


def test_an_observation_invented_by_the_model_is_dropped_and_reported() -> None:
    book = Playbook.of(make_request(), REACT).ask()
    write(book, f"{ACTION}\nObservation: sunny")
    assert Dropped("invented_result") in book.turn.facts
