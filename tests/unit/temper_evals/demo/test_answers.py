import pytest

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from temper_evals.demo.answers import AnswerKind, ClientAnswer, Comparison, read_answer
from temper_evals.demo.scenarios import TOOLS, DemoScenario


def call(arguments: JsonValue, name: str = "get_weather") -> JsonObject:
    return {"id": "1", "type": "function", "function": {"name": name, "arguments": arguments}}


def completion(*calls: JsonObject, content: str | None = None) -> bytes:
    message: JsonObject = {"role": "assistant", "content": content}
    message |= {"tool_calls": [*calls]} if calls else {}
    return json.dump({"choices": [{"index": 0, "message": message}]})


def test_a_call_is_shown_in_the_syntax_of_a_function_call() -> None:
    body = completion(call('{"city":"Cork","days":3}'))
    assert read_answer(body, {}, TOOLS) == ClientAnswer(
        AnswerKind.CALL, 'get_weather(city="Cork", days=3)'
    )


def test_several_calls_are_shown_with_commas_between_them() -> None:
    body = completion(call('{"city":"Cork"}'), call('{"city":"Graz"}'))
    expected = 'get_weather(city="Cork"), get_weather(city="Graz")'
    assert read_answer(body, {}, TOOLS) == ClientAnswer(AnswerKind.CALL, expected)


@pytest.mark.parametrize(
    ("tool_call", "words"),
    [
        (call('{"city":"Bern","unit":"kelvin"}'), 'get_weather(city="Bern", unit="kelvin")'),
        (call('{"city":"Cork","days":"3"}'), 'get_weather(city="Cork", days="3")'),
        (call("{}"), "get_weather()"),
        (call('{"place":"Oslo"}', "forecast"), 'forecast(place="Oslo")'),
        (call('{"city":'), 'get_weather({"city":)'),
        (call('["Oslo"]'), "get_weather(['Oslo'])"),
        (call(None), "get_weather(None)"),
        ({}, "None(None)"),
    ],
)
def test_a_call_that_does_not_match_its_schema_is_unusable(
    tool_call: JsonObject, words: str
) -> None:
    answer = read_answer(completion(tool_call), {}, TOOLS)
    assert answer == ClientAnswer(AnswerKind.UNUSABLE_CALL, words)
    assert not answer.is_usable


def test_an_answer_with_a_valid_and_an_invalid_call_is_unusable() -> None:
    answer = read_answer(completion(call('{"city":"Cork"}'), call("{}")), {}, TOOLS)
    assert answer.kind is AnswerKind.UNUSABLE_CALL


def test_an_answer_with_only_text_is_not_usable() -> None:
    answer = read_answer(completion(content="It rains."), {}, TOOLS)
    assert answer == ClientAnswer(AnswerKind.TEXT, "It rains.")
    assert not answer.is_usable


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"error":{"message":"No such model."}}', "No such model."),
        (b'{"choices":[]}', "an empty answer"),
        (completion(), "an empty answer"),
        (b"[]", "an empty answer"),
        (b"<html>\xff", "not JSON: <html>\N{REPLACEMENT CHARACTER}"),
        (b"x" * 1000, "not JSON: " + "x" * 80),
    ],
)
def test_a_response_body_without_an_answer_gives_an_error(body: bytes, words: str) -> None:
    assert read_answer(body, {}, TOOLS) == ClientAnswer(AnswerKind.ERROR, words)


@pytest.mark.parametrize(
    ("attempts", "repairs", "effort"),
    [
        ("2", "announced", "2 attempts; announced, and made after a retry"),
        ("1", "", ""),
        ("3", "", "3 attempts"),
        ("1", "rescued=hermes", "call found in the text: hermes"),
        ("2", "rescued=hermes;coerced=1", None),
        ("1", "repaired=1;renamed=1", "invalid JSON repaired: 1; tool names matched: 1"),
        ("1", "dropped=2", "dropped: 2"),
    ],
)
def test_the_repairs_in_the_response_headers_are_described(
    attempts: str, repairs: str, effort: str | None
) -> None:
    headers = {"x-temper-attempts": attempts, "x-temper-repairs": repairs}
    everything = "2 attempts; call found in the text: hermes; values converted: 1"
    answer = read_answer(completion(content="Yes."), headers, TOOLS)
    assert answer.effort == (everything if effort is None else effort)


@pytest.mark.parametrize(("known", "output"), [("I will.", "I will."), ("", "It rains.")])
def test_model_text_is_the_scripted_reply_or_else_the_answer_without_temper(
    known: str, output: str
) -> None:
    answer = ClientAnswer(AnswerKind.TEXT, "It rains.")
    assert Comparison(DemoScenario("one", "Rain?", known), answer, answer).model_text == output
