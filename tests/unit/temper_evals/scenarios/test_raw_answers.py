import pytest

from proxy.conversation.json import JsonObject
from temper_evals.scenarios.raw_answers import objection_to_raw
from temper_evals.scenarios.suite import FAMILIES

TOOLS = FAMILIES["single"](0).setting.tools
NAME = FAMILIES["single"](0).calls[0].name
RESULT: JsonObject = {"role": "tool", "content": '{"reference":"REF-1"}'}
CALL = f'{{"name": "{NAME}", "arguments": {{"a": 1}}}}'


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ('<tool_response>\n{"reference": "REF-1"}\n</tool_response>', "markup"),
        ("<|tool_response|>REF-1", "markup"),
        (CALL, "a call as JSON"),
        (f"{CALL}\n{CALL}\n", "a call as JSON"),
        (f'{CALL}\n{{"ok": true}}', "a call as JSON"),
        (f"You can use this code:\n```json\n{CALL}\n```", "a call as JSON"),
        (CALL.replace("arguments", "parameters"), "a call as JSON"),
        ('{"reference": "REF-1"}', "JSON of a result"),
        ('```json\n{"reference": "REF-1"}\n```', "JSON of a result"),
    ],
)
def test_an_answer_with_markup_or_the_json_of_a_call_or_result_is_refused(
    answer: str, problem: str
) -> None:
    assert problem in objection_to_raw(answer, [RESULT], TOOLS)


@pytest.mark.parametrize(
    "answer",
    [
        "It is done: REF-1.",
        'The result was {"reference": "REF-1"}.',
        '{"article": "x", "pieces": 3}',
        CALL.replace(NAME, "unknown"),
        f'I called "{NAME}" with the arguments you gave.',
        "REF-1",
    ],
)
def test_an_answer_of_plain_text_or_other_json_is_accepted(answer: str) -> None:
    plain: JsonObject = {"role": "tool", "content": "REF-1"}
    assert objection_to_raw(answer, [RESULT, plain], TOOLS) == ""


def test_an_answer_may_contain_a_call_if_may_quote_is_set_or_there_are_no_tools() -> None:
    assert objection_to_raw(CALL, [RESULT], TOOLS, may_quote=True) == ""
    assert objection_to_raw(CALL, [RESULT], []) == ""
