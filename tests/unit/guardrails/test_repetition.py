import json

import pytest
from msgspec.structs import replace

from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.tools import WrittenCall
from proxy.guardrails.executed_calls import (
    find_failed_call,
    has_run,
    is_executed,
    is_observing,
)
from proxy.guardrails.offer import OfferedTools, TextPolicy
from proxy.guardrails.repetition import (
    calls_of,
    is_echo,
    is_json,
    list_shown_calls,
    may_become_echo,
    repeats_line,
    words_in_json,
)
from proxy.guardrails.transcript import CompletedCall
from tests.fakes.playbook import CLOCK, WEATHER, make_tool

MAIL = make_tool(
    "send_mail",
    {
        "type": "object",
        "properties": {"to": {"type": "string"}, "urgent": {"type": "boolean"}},
        "required": ["to"],
    },
)
PARIS: JsonObject = {"city": "Paris"}
WEATHER_RESULT = '{"city": "Paris", "weather": "rain, 12 degrees"}'
PARIS_CALL = '{"name": "get_weather", "arguments": {"city": "Paris"}}'
ROME_CALL = '{"name": "get_weather", "arguments": {"city": "Rome"}}'


def completed_call(
    name: str = "get_weather",
    arguments: JsonObject | None = None,
    result: str = WEATHER_RESULT,
    *,
    failed: bool = False,
) -> CompletedCall:
    return CompletedCall(name, PARIS if arguments is None else arguments, result, failed)


OFFER = OfferedTools(
    (WEATHER, CLOCK, MAIL),
    TextPolicy.AUTO,
    (),
    user_texts=("What is the weather in Paris?",),
    executed=(completed_call(),),
)
FRESH = replace(OFFER, executed=())


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("read_file", True),
        ("readFile", True),
        ("weather_get", True),
        ("run_tests", True),
        ("bash", True),
        ("send_mail", False),
        ("add_event", False),
        ("unread_count_reset", False),
        ("do", False),
        ("123", False),
    ],
)
def test_the_verb_in_a_tool_name_shows_whether_the_tool_reads_or_executes_something(
    name: str, expected: bool
) -> None:
    assert is_observing(name) is expected


SENT = completed_call("send_mail", {"to": "a@b.org"}, '{"ok": true}')
READ = completed_call("read_file", {"path": "a"}, "text")
WROTE = completed_call("write_file", {"path": "a"}, "ok")


@pytest.mark.parametrize(
    ("call", "executed", "expected"),
    [
        pytest.param(SENT, [SENT], True, id="a call with an effect"),
        pytest.param(SENT, [], False, id="no executed call"),
        pytest.param(SENT, [replace(SENT, has_failed=True)], False, id="the call failed"),
        pytest.param(SENT, [replace(SENT, arguments={"to": "c@d.org"})], False, id="other values"),
        pytest.param(SENT, [SENT, WROTE], True, id="a call with an effect before another change"),
        pytest.param(
            SENT,
            [replace(SENT, result="still sending")],
            True,
            id="a call with an effect that may still run",
        ),
        pytest.param(READ, [READ], True, id="a read without a later change"),
        pytest.param(READ, [READ, WROTE], False, id="a read before a change"),
        pytest.param(READ, [WROTE, READ, WROTE], True, id="a read between two equal changes"),
        pytest.param(READ, [READ, completed_call()], True, id="a read before another read"),
        pytest.param(
            READ, [replace(READ, result="job is running")], False, id="a read of a running job"
        ),
        pytest.param(
            READ, [READ, replace(WROTE, has_failed=True)], False, id="a first read after a failure"
        ),
        pytest.param(
            READ,
            [READ, replace(WROTE, has_failed=True), READ],
            True,
            id="a second read after a failure",
        ),
    ],
)
def test_a_call_counts_as_executed_unless_it_failed_or_its_result_may_differ_now(
    call: CompletedCall, executed: list[CompletedCall], expected: bool
) -> None:
    offer = replace(OFFER, executed=tuple(executed))
    assert is_executed(call.name, call.arguments, offer) is expected


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (WrittenCall("send_mail", {"to": "a@b.org", "urgent": True}), True),
        (WrittenCall("send_mail", {"to": "a@b.org", "urgent": "true"}), True),
        (WrittenCall("send_mail", {"to": "a@b.org", "urgent": [7]}), False),
        (WrittenCall("no_tool", {}), False),
    ],
)
def test_a_call_is_coerced_before_it_is_compared_with_executed_calls(
    call: WrittenCall, expected: bool
) -> None:
    sent = completed_call("send_mail", {"to": "a@b.org", "urgent": True}, "ok")
    assert has_run(call, replace(OFFER, executed=(sent,))) is expected


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(WEATHER_RESULT, id="the result"),
        pytest.param(f"```json\n{WEATHER_RESULT}\n```", id="in a code fence"),
        pytest.param(f"```json\n{WEATHER_RESULT}", id="in a code fence without its end"),
        pytest.param('{"weather": "rain"}', id="a member of the result"),
        pytest.param('{"city": "Rome", "weather": "sun"}', id="an invented similar result"),
        pytest.param(f"{PARIS_CALL}\n{WEATHER_RESULT}", id="the call and its result"),
        pytest.param(f"{PARIS_CALL}\n{PARIS_CALL}", id="the executed call twice"),
        pytest.param('{"city": "Paris", "weather"', id="the beginning of the result"),
        pytest.param(f"Observation: {WEATHER_RESULT}", id="with a label"),
        pytest.param(f"Ergebnis:\n```json\n{WEATHER_RESULT}\n```", id="with a label, in a fence"),
        pytest.param(f'{{"result": {WEATHER_RESULT}}}', id="inside another object"),
        pytest.param(
            json.dumps({"role": "tool", "content": WEATHER_RESULT}), id="as JSON text in a member"
        ),
        pytest.param(f"[{WEATHER_RESULT}]", id="in a list"),
    ],
)
def test_a_reply_that_only_repeats_results_or_executed_calls_is_an_echo(text: str) -> None:
    assert is_echo(text, OFFER)
    assert may_become_echo(text, OFFER)
    assert not is_echo(text, FRESH)
    assert not may_become_echo(text, FRESH)


@pytest.mark.parametrize(
    "text",
    [
        "It rains in Paris, at 12 degrees.",
        '{"temperature": 12}',
        f"{WEATHER_RESULT}\nIt rains.",
        ROME_CALL,
        "{}",
        '{"city": "Oslo", "weather"',
        "Result: it rains.",
        '["rain"]',
        '{"city": "' + 20_000 * "a" + '"}',
        "",
    ],
)
def test_a_reply_that_is_not_just_a_copied_result_is_not_an_echo(text: str) -> None:
    assert not is_echo(text, OFFER)


def test_a_complete_member_of_a_result_is_an_echo() -> None:
    files = completed_call("list_files", {}, '{"files": ["a.txt", "b.txt"], "count": 2}')
    offer = replace(OFFER, executed=(completed_call(result="no JSON"), files))
    assert is_echo('["a.txt", "b.txt"]', offer)
    assert not is_echo('["a.txt"]', offer)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"ok": true', True),
        ('{"answer": 12}', True),
        ('{"answer": "It rains in Paris."}', False),
        ("It rains.", False),
    ],
)
def test_in_a_retry_json_without_a_sentence_counts_as_an_echo(text: str, expected: bool) -> None:
    assert is_echo(text, OFFER, is_retry=True) is expected
    assert not is_echo(text, FRESH, is_retry=True)


@pytest.mark.parametrize(
    "offer",
    [
        replace(OFFER, user_texts=("Return the result verbatim.",)),
        replace(OFFER, user_texts=("As JSON, please: what is the weather in Paris?",)),
        replace(OFFER, instructions=("Always answer with one JSON object.",)),
    ],
)
def test_a_copied_result_is_an_answer_if_json_or_the_exact_result_was_requested(
    offer: OfferedTools,
) -> None:
    assert not is_echo(WEATHER_RESULT, offer, is_retry=True)
    assert not may_become_echo(WEATHER_RESULT, offer, is_retry=True)


@pytest.mark.parametrize(
    "offer",
    [
        replace(OFFER, instructions=("Tools take JSON.\nAnswer in one sentence.",)),
        replace(OFFER, user_texts=("Send Paul exactly this text: It rains.",)),
        replace(OFFER, user_texts=("How much raw material is left?",)),
    ],
)
def test_a_copied_result_is_an_echo_if_the_request_only_mentions_json_or_exact_words(
    offer: OfferedTools,
) -> None:
    assert is_echo(WEATHER_RESULT, offer)


@pytest.mark.parametrize(
    ("beginning", "may_become"),
    [
        ("{", True),
        ("  ```json\n{", True),
        ('{"ci', True),
        ('{"city"', True),
        ('{"temp', False),
        ('{"temperature"', False),
        ("It", False),
        ("", False),
        ("{" + 20_000 * " ", False),
    ],
)
def test_the_first_key_shows_whether_a_reply_may_become_an_echo(
    beginning: str, may_become: bool
) -> None:
    assert may_become_echo(beginning, OFFER) is may_become


def test_any_json_may_become_an_echo_in_a_retry() -> None:
    assert may_become_echo('{"temperature"', OFFER, is_retry=True)
    assert not may_become_echo("It", OFFER, is_retry=True)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"ok": true, "outcome": "It is done."}', "It is done."),
        ('```json\n{"answer": " It rains. "}\n```', "It rains."),
        ('{"city": "Paris"}', ""),
        ('{"a": "two words", "b": "three more words"}', ""),
        ('["It is done."]', ""),
        (f'{PARIS_CALL}\n{{"outcome": "It is done."}}', ""),
        (PARIS_CALL, ""),
        ("It is done.", ""),
    ],
)
def test_words_in_json_returns_the_only_sentence_of_a_json_object(text: str, words: str) -> None:
    assert words_in_json(text) == words


@pytest.mark.parametrize(
    ("text", "is_recited"),
    [
        pytest.param(
            "To get the weather, you can use the following code:\n\n"
            f"```json\n{PARIS_CALL}\n```\n\nAnd:\n\n```json\n{PARIS_CALL}\n```",
            True,
            id="an explanation of calls that ran",
        ),
        pytest.param(f"Here:\n{PARIS_CALL}\n{ROME_CALL}", False, id="one call is new"),
        pytest.param(
            f"Here:\n{PARIS_CALL}\n" + '{"name": "x", "arguments": {}}',
            True,
            id="an executed call and a call of an unknown tool",
        ),
        pytest.param('{"name": "x", "arguments": {}}', False, id="only a call of an unknown tool"),
        pytest.param("It rains in Paris.", False, id="a sentence without calls"),
        pytest.param(PARIS_CALL + 20_000 * " ", False, id="a text that is too long"),
    ],
)
def test_a_text_only_repeats_calls_if_all_its_calls_of_known_tools_have_run(
    text: str, is_recited: bool
) -> None:
    shown = list_shown_calls(text, OFFER)
    assert (bool(shown) and all(has_run(call, OFFER) for call in shown)) is is_recited
    assert not list_shown_calls(text, FRESH)


def failed(result: str, name: str = "send_mail") -> CompletedCall:
    return CompletedCall(name, {"to": "a"}, result, has_failed=True)


MOVED = CompletedCall("move_file", {"path": "x"}, "ok", has_failed=False)
FOUND = CompletedCall("find_file", {"path": "x"}, "ok", has_failed=False)


@pytest.mark.parametrize(
    ("executed", "is_found"),
    [
        ([failed("error: unknown address")], True),
        ([failed("error: unknown address"), FOUND], True),
        ([failed("error: unknown address"), MOVED], False),
        ([failed("error: timed out")], False),
        ([failed("error: 503 Service Unavailable")], False),
        ([failed("error: rate limit exceeded")], False),
        ([failed("error: try again")], False),
        ([CompletedCall("send_mail", {"to": "a"}, "ok", has_failed=False)], False),
        ([], False),
    ],
)
def test_find_failed_call_finds_an_equal_failed_call_unless_it_may_succeed_now(
    executed: list[CompletedCall], is_found: bool
) -> None:
    offer = replace(OFFER, executed=tuple(executed))
    assert (find_failed_call("send_mail", {"to": "a"}, offer) is not None) is is_found
    assert find_failed_call("send_mail", {"to": "b"}, offer) is None


def test_a_failed_call_in_another_case_is_new_only_if_the_user_named_both_spellings() -> None:
    offer = replace(OFFER, executed=(failed("error: unknown address"),))
    assert find_failed_call("send_mail", {"to": "A"}, offer) is not None
    named = replace(offer, user_texts=("Write to a, and to A.",))
    assert find_failed_call("send_mail", {"to": "A"}, named) is None


def test_find_failed_call_ignores_calls_of_tools_that_execute_something() -> None:
    offer = replace(OFFER, executed=(failed("error: 2 tests failed", "run_tests"),))
    assert find_failed_call("run_tests", {"to": "a"}, offer) is None


@pytest.mark.parametrize(
    ("text", "is_endless"),
    [
        (4 * "To cancel the order, you can use `cancel_order`.\n" + "To", True),
        (3 * "To cancel the order, you can use `cancel_order`.\n" + "To", True),
        (2 * "To cancel the order, you can use `cancel_order`.\n" + "To", False),
        (9 * "| --- | --- |\n", False),
        ("One line that is long enough to count.\nAnother one, also long.\nA third.\nTo", False),
        ("", False),
    ],
)
def test_a_text_repeats_a_line_if_the_last_line_occurs_too_often(
    text: str, is_endless: bool
) -> None:
    assert repeats_line(text) is is_endless


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{}", True),
        ("[1]\n{}", True),
        ("```json\n{}\n```", True),
        ("12", False),
        ("{} and more", False),
        ("{", False),
        ("", False),
    ],
)
def test_only_objects_and_lists_are_recognized_as_json(text: str, expected: bool) -> None:
    assert is_json(text) is expected


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (PARIS_CALL, ["get_weather"]),
        (f"[{PARIS_CALL}]\n{ROME_CALL}", ["get_weather", "get_weather"]),
        (f"{PARIS_CALL}\n{WEATHER_RESULT}", []),
        ("words", []),
        ("", []),
    ],
)
def test_calls_are_returned_only_if_the_text_consists_of_calls(text: str, names: list[str]) -> None:
    assert [call.name for call in calls_of(text)] == names


@pytest.mark.parametrize("value", [12, None, "rain", True])
def test_an_object_is_not_an_echo_of_a_scalar_result(value: JsonValue) -> None:
    offer = replace(OFFER, executed=(completed_call(result=json.dumps(value)),))
    assert not is_echo('{"city": "Paris"}', offer)
