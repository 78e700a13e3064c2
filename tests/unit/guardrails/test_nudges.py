import pytest
from msgspec.structs import replace

from proxy.conversation import json
from proxy.conversation.tools import NamedTool, ToolCall
from proxy.conversation.workflows import Workflow
from proxy.guardrails import nudges
from proxy.guardrails.offer import OfferedTools, TextPolicy
from proxy.guardrails.schemas.violations import Violation
from proxy.guardrails.tool_prompts.json_contract import json_contract
from tests.fakes.playbook import CLOCK, WEATHER, make_tool

OFFER = OfferedTools((WEATHER, CLOCK), TextPolicy.RESPOND, (), make_tool("respond", {}))
REQUIRE = replace(OFFER, respond=None, text_policy=TextPolicy.REQUIRE)


def test_the_nudge_after_prose_quotes_the_prose_and_adds_a_user_message() -> None:
    answer, nudge = nudges.correct_prose("It is sunny.", OFFER)
    assert (answer.role, answer.text) == ("assistant", "It is sunny.")
    assert nudge.role == "user"
    for name in ("get_weather", "get_time", "respond"):
        assert name in nudge.text


def test_the_nudge_requests_only_a_call_if_prose_is_not_accepted() -> None:
    (*_, nudge) = nudges.correct_prose("It is sunny.", REQUIRE)
    assert "respond" not in nudge.text
    assert "get_weather, get_time" in nudge.text


def test_the_nudge_names_the_final_answer_object_if_the_prompt_prescribes_json() -> None:
    offer = replace(OFFER, syntaxes=(json_contract("respond"),))
    (*_, nudge) = nudges.correct_prose("It is sunny.", offer)
    assert 'an object of the type "final"' in nudge.text
    assert "(get_weather, get_time)" in nudge.text
    (nudge,) = nudges.correct_silence(replace(offer, tools=()))
    assert "No tool can be called now" in nudge.text


def test_the_nudge_after_an_empty_reply_is_only_a_user_message() -> None:
    (nudge,) = nudges.correct_silence(OFFER)
    assert "empty" in nudge.text


def test_each_call_of_a_bad_reply_gets_a_separate_tool_result() -> None:
    bad, good = ToolCall("a", "get_time", "{}"), ToolCall("b", "get_weather", "{}")
    answers = [(bad, "no such tool"), (good, None)]
    text, first, second = nudges.correct_calls("Looking.", answers)
    assert text.calls == (bad, good)
    assert (first.tool_call_id, first.text) == ("a", "Error: no such tool")
    assert second.tool_call_id == "b"
    assert "Not run" in second.text


def test_the_nudge_after_a_broken_call_is_a_user_message() -> None:
    (nudge,) = nudges.correct_broken_call(" ", "it ends too early", OFFER)
    assert nudge.role == "user"
    assert "it ends too early" in nudge.text


def test_a_long_unknown_tool_name_is_shortened_and_escaped() -> None:
    text = nudges.describe_unknown_tool("x\n" * 100, OFFER)
    assert "\n" not in text
    assert len(text) < 300


def test_the_nudge_after_a_wrong_tool_names_the_required_tool() -> None:
    text = nudges.describe_wrong_tool("get_weather", replace(REQUIRE, choice=NamedTool("get_time")))
    assert "get_weather" in text
    assert text.endswith("Call get_time.")


def test_a_nudge_lists_at_most_twenty_tool_names() -> None:
    many = tuple(make_tool(f"tool_{number}", {}) for number in range(30))
    text = nudges.describe_unknown_tool("x", replace(REQUIRE, tools=many))
    assert "tool_19 and 10 more" in text
    assert "tool_20" not in text


BAD, WORSE = Violation("/a", "bad"), Violation("/b", "worse")
ABSENT = Violation("/city", "is required but missing")


def test_the_nudge_about_invalid_arguments_lists_the_violations() -> None:
    text = nudges.describe_invalid_arguments([BAD, WORSE], OFFER)
    assert "/a: bad; /b: worse" in text
    assert "ask the user" not in text


@pytest.mark.parametrize(
    ("offer", "way"),
    [
        (OFFER, "do not guess: ask the user with respond."),
        (replace(OFFER, respond=None), "do not guess: ask the user."),
        (replace(OFFER, syntaxes=(json_contract("respond"),)), 'of the type "final".'),
    ],
)
def test_the_nudge_about_missing_values_suggests_asking_the_user(
    offer: OfferedTools, way: str
) -> None:
    assert nudges.describe_invalid_arguments([BAD, ABSENT], offer).endswith(way)


@pytest.mark.parametrize("offer", [REQUIRE, replace(OFFER, workflow=Workflow(("get_time",)))])
def test_asking_the_user_is_suggested_only_if_an_answer_is_allowed(offer: OfferedTools) -> None:
    assert "ask" not in nudges.describe_invalid_arguments([ABSENT], offer)


def test_the_nudge_after_an_unknown_syntax_allows_a_call_or_an_empty_message() -> None:
    (nudge,) = nudges.correct_unknown_syntax(OFFER)
    assert "no tool ran" in nudge.text
    assert "call it now (get_weather, get_time)" in nudge.text
    assert "call respond with an empty message" in nudge.text


def test_a_reply_that_may_still_become_the_word_done_may_be_about_the_nudge() -> None:
    assert all(map(nudges.is_done, ("DONE", " **Done.** ")))
    assert all(map(nudges.may_be_about_nudge, ("", "D", "**don", "DONE")))
    assert not any(map(nudges.may_be_about_nudge, ("DONE it", "No, it")))


def test_a_reply_that_may_still_become_a_copy_of_a_nudge_may_be_about_the_nudge() -> None:
    copy = "get_time has run. Now do the next step, about Oslo: call the tool."
    assert nudges.copies_nudge(copy)
    assert all(nudges.may_be_about_nudge(copy[:size]) for size in range(len(copy)))
    assert not nudges.copies_nudge("get_time has run. It is noon.")


def test_failed_rounds_are_reported_in_a_user_message() -> None:
    note = nudges.warn_of_failures(4)
    assert note.role == "user"
    assert "not a tool result: Every tool call of the last 4 rounds failed" in note.text


def test_the_demand_for_json_is_added_to_the_last_message() -> None:
    call = ToolCall("a", "get_time", "{}")
    reply, result = nudges.insist_on_json(nudges.correct_calls("", [(call, "no")]))
    assert reply.calls == (call,)
    assert result.role == "tool"
    assert result.text.startswith("Error: no ")
    assert '{"name": <tool>' in str(json.parse(result.source))
    (user,) = nudges.insist_on_json(nudges.correct_silence(OFFER))
    assert user.role == "user"
    assert '{"name": <tool>' in user.text


def test_without_a_nudge_the_demand_for_json_is_a_separate_user_message() -> None:
    (message,) = nudges.insist_on_json(())
    assert message.role == "user"
