import pytest

from benchmarks.healthy.holding import releases
from benchmarks.healthy.replies import KINDS, LONG, RESPONDING


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("number", [1, 2])
def test_every_delta_gets_out_with_itself_or_a_later_one(kind: str, number: int) -> None:
    deltas = KINDS[kind](number).deltas
    found = releases(kind, number)
    assert len(found) == len(deltas)
    assert all(place <= let_out <= len(deltas) for place, let_out in enumerate(found))


def test_an_answer_is_prose_where_no_tool_for_answers_is_offered() -> None:
    assert releases(RESPONDING, 1) == releases("prose", 1)


def test_of_a_call_a_string_flows_and_a_value_waits_for_its_end() -> None:
    deltas = [delta.text for delta in KINDS["one call"](15).deltas]
    assert "".join(deltas) == 'get_weather{"city":"Paris","days":15}'
    assert deltas[6:8] == ['"', "Paris"]  # the opening quote lets the name and the key out
    assert deltas[14:] == ["15", "}"]
    # the end of the number lets it out, and the end of the reply the brace
    assert releases("one call", 15) == (*[6] * 7, 7, *[15] * 7, 16)


def test_a_long_string_is_not_held() -> None:
    found = releases(LONG, 1)
    # the backslash of a line end waits for the letter, and both for the sign after them: a mark of
    # a call that an engine's parser missed may begin there
    assert sum(let_out - place > 3 for place, let_out in enumerate(found)) < 20
