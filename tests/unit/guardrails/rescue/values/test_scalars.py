import pytest

from proxy.conversation.json import JsonValue
from proxy.guardrails.rescue.values.scalars import meaning_of, number_in
from proxy.guardrails.rescue.values.written import Problem, Unreadable


@pytest.mark.parametrize(
    ("text", "number"), [("0", 0), ("-12", -12), ("1.50", 1.5), ("2e3", 2000.0), ("-0.5", -0.5)]
)
def test_a_number_is_what_json_calls_one(text: str, number: float) -> None:
    assert number_in(text) == number


@pytest.mark.parametrize("text", ["", "1.", "+1", "1.2.3", "--1", "00501"])
def test_anything_else_is_none(text: str) -> None:
    assert number_in(text) == Unreadable(Problem.UNEXPECTED)


def test_digits_behind_a_zero_stay_text_in_python() -> None:
    assert number_in("00501", is_python=True) == "00501"
    assert number_in("-01", is_python=True) == Unreadable(Problem.UNEXPECTED)


@pytest.mark.parametrize("text", ["9" * 1001, "1e999"])
def test_what_no_one_can_hold_is_too_long(text: str) -> None:
    assert number_in(text) == Unreadable(Problem.TOO_LONG)


@pytest.mark.parametrize(
    ("text", "value"),
    [("true", True), ("None", None), ("5", 5), ("05", "05"), ("so it is", "so it is")],
)
def test_words_have_a_meaning(text: str, value: JsonValue) -> None:
    assert meaning_of(text) == value
