import pytest

from proxy.conversation.json import JsonObject, JsonSchema
from proxy.facts import Dropped, Unchecked
from proxy.guardrails.schemas.answers import InvalidAnswer, ValidAnswer, check_answer

CITY: JsonSchema = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
}


@pytest.mark.parametrize("text", ['{"city": "Paris"}', ' {"city":"Paris"}\n', '{"city": "```"}'])
def test_an_answer_in_the_right_form_stays_as_it_was_written(text: str) -> None:
    assert check_answer(text, CITY) == ValidAnswer(text)


@pytest.mark.parametrize(
    "text",
    [
        '```json\n{"city": "Paris"}\n```',
        '```\n{"city": "Paris"}```',
        ' ```JSON\n\n{"city": "Paris"}\n\n``` ',
    ],
)
def test_a_fence_around_the_whole_answer_is_taken_off(text: str) -> None:
    assert check_answer(text, CITY) == ValidAnswer('{"city": "Paris"}', (Dropped("code_fence"),))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("It is Paris.", "it is not valid JSON: "),
        ("", "it is not valid JSON: "),
        ('{"city": "Paris"} I hope this helps.', "it is not valid JSON: "),
        ('```python\n{"city": "Paris"}\n```', "it is not valid JSON: "),
        ('```json\n{"city": "Paris"}', "it is not valid JSON: "),
        ("```json", "it is not valid JSON: "),
        ("{}", "/city: is required but missing"),
        ('{"city": 5}', "/city: "),
        ("[]", "the answer: "),
    ],
)
def test_an_answer_in_the_wrong_form_is_told_what_is_wrong(text: str, problem: str) -> None:
    checked = check_answer(text, CITY)
    assert isinstance(checked, InvalidAnswer)
    assert checked.problems[0].startswith(problem)


def test_a_schema_that_cannot_be_compiled_demands_json_and_says_so() -> None:
    checked = check_answer("[1]", {"pattern": "("})
    assert isinstance(checked, ValidAnswer)
    assert [(type(fact), checked.text) for fact in checked.facts] == [(Unchecked, "[1]")]
    assert isinstance(check_answer("one", {"pattern": "("}), InvalidAnswer)


def test_an_unknown_type_is_left_out_of_the_schema_and_said_so() -> None:
    schema: JsonObject = {"type": "nonsense", "minItems": 1}
    checked = check_answer("[1]", schema)
    assert isinstance(checked, ValidAnswer)
    assert [(type(fact), checked.text) for fact in checked.facts] == [(Unchecked, "[1]")]
    assert isinstance(check_answer("[]", schema), InvalidAnswer)


def test_an_answer_with_too_many_defects_is_told_so_in_one_sentence() -> None:
    checked = check_answer(f"[{'0,' * 50_000}0]", {"items": {"type": "string"}})
    assert isinstance(checked, InvalidAnswer)
    (problem,) = checked.problems
    assert problem.startswith("the answer: expected less at once")
