import pytest
from msgspec.structs import replace

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.requests import UNSAID, Request, ThinkingOptions
from proxy.dialects.openai_chat.decode import decode_request
from proxy.dialects.openai_chat.thinking import fit_effort, fit_thinking, thinking_fields

OFF: JsonObject = {"enable_thinking": False}
ON: JsonObject = {"enable_thinking": True}


def read(**fields: JsonValue) -> Request:
    body: JsonObject = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], **fields}
    return decode_request(json.dump(body))


def saying(thinking: ThinkingOptions, **fields: JsonValue) -> Request:
    return replace(read(**fields), thinking=thinking)


@pytest.mark.parametrize(
    ("fields", "thinking"),
    [
        ({}, UNSAID),
        ({"reasoning_effort": None, "chat_template_kwargs": None}, UNSAID),
        ({"reasoning_effort": "low"}, ThinkingOptions(effort="low")),
        ({"reasoning_effort": "none"}, ThinkingOptions(is_on=False)),
        ({"reasoning_effort": "none", "chat_template_kwargs": ON}, ThinkingOptions(is_on=True)),
        ({"chat_template_kwargs": OFF}, ThinkingOptions(is_on=False)),
        ({"chat_template_kwargs": {"thinking": True}}, ThinkingOptions(is_on=True)),
        ({"chat_template_kwargs": {"enable_thinking": "yes"}}, UNSAID),
        ({"chat_template_kwargs": "x"}, UNSAID),
        ({"thinking_budget_tokens": 64}, ThinkingOptions(budget=64)),
        ({"thinking_budget_tokens": True}, UNSAID),
        ({"thinking_budget_tokens": "64"}, UNSAID),
    ],
)
def test_what_a_client_says_of_thoughts_is_understood(
    fields: JsonObject, thinking: ThinkingOptions
) -> None:
    assert read(**fields).thinking == thinking


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"reasoning_effort": "low"},
        {"reasoning_effort": "xhigh"},
        {"chat_template_kwargs": OFF},
        {"chat_template_kwargs": {"thinking": True, "other": 1}},
        {"thinking_budget_tokens": 64},
    ],
)
def test_what_a_client_wrote_itself_is_not_written_again(fields: JsonObject) -> None:
    assert thinking_fields(read(**fields), takes_budget=True) == {}


@pytest.mark.parametrize(
    ("thinking", "added"),
    [
        (ThinkingOptions(is_on=False), {"chat_template_kwargs": OFF}),
        (ThinkingOptions(is_on=True), {"chat_template_kwargs": ON}),
        (ThinkingOptions(effort="low"), {"reasoning_effort": "low"}),
        (ThinkingOptions(effort="max"), {"reasoning_effort": "high"}),
        (ThinkingOptions(effort="brand_new"), {}),
        (ThinkingOptions(budget=64), {"thinking_budget_tokens": 64}),
    ],
)
def test_what_was_said_in_other_words_is_told_in_those_of_the_engine(
    thinking: ThinkingOptions, added: JsonObject
) -> None:
    assert thinking_fields(saying(thinking), ("enable_thinking",), takes_budget=True) == added


def test_an_engine_without_budgets_is_told_of_none() -> None:
    assert thinking_fields(saying(ThinkingOptions(budget=64))) == {}


def test_where_nobody_knows_the_template_the_switch_has_both_its_names() -> None:
    assert thinking_fields(saying(ThinkingOptions(is_on=False))) == {
        "chat_template_kwargs": {"enable_thinking": False, "thinking": False}
    }


def test_a_switch_leaves_the_clients_other_variables_where_they_are() -> None:
    request = saying(ThinkingOptions(is_on=False), chat_template_kwargs={"language": "de"})
    assert thinking_fields(request, ("enable_thinking",)) == {
        "chat_template_kwargs": {"language": "de", "enable_thinking": False}
    }


def test_no_effort_at_all_switches_thoughts_off_for_engines_that_know_the_switch_alone() -> None:
    added = thinking_fields(read(reasoning_effort="none"), ("enable_thinking",))
    assert added == {"chat_template_kwargs": OFF}


QWEN = ("low", "medium", "xhigh")


@pytest.mark.parametrize(
    ("wanted", "word"), [("none", "low"), ("high", "xhigh"), ("max", "xhigh"), ("low", "low")]
)
def test_an_effort_goes_in_the_nearest_word_that_the_model_takes(wanted: str, word: str) -> None:
    told = fit_thinking(read(reasoning_effort=wanted), QWEN, "", {})
    assert json.parse(told.fields["reasoning_effort"]) == word
    assert not {"reasoning_effort"} & thinking_fields(told).keys()
    told = fit_thinking(read(chat_template_kwargs={"reasoning_effort": wanted}), QWEN, "", {})
    assert json.parse(told.fields["chat_template_kwargs"]) == {"reasoning_effort": word}
    told = fit_thinking(saying(ThinkingOptions(effort=wanted)), QWEN, "", {})
    assert thinking_fields(told) == {"reasoning_effort": word}


@pytest.mark.parametrize("fields", [{}, {"reasoning_effort": "enormous"}])
def test_where_no_known_effort_is_said_nothing_is_changed(fields: JsonObject) -> None:
    asked = read(**fields)
    assert fit_thinking(asked, QWEN, "strength", {}) == asked
    assert fit_thinking(asked, (), "", {}) is asked
    assert fit_effort(asked, QWEN) is asked


def test_a_template_gets_its_own_variables_beside_those_of_the_client() -> None:
    asked = saying(ThinkingOptions(effort="max"), chat_template_kwargs={"language": "de"})
    told = fit_thinking(asked, ("low", "xhigh"), "strength", {"clear_thinking": False})
    variables = {"clear_thinking": False, "strength": "xhigh", "language": "de"}
    assert thinking_fields(told)["chat_template_kwargs"] == variables
    own = saying(ThinkingOptions(), chat_template_kwargs={"clear_thinking": True})
    assert thinking_fields(fit_thinking(own, (), "", {"clear_thinking": False})) == {}
