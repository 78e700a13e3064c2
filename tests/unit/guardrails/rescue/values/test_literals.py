import pytest

from proxy.guardrails.rescue.values.literals import Literals, literals_of

TAGS = Literals(("<call>", "<calls>", "[A]"))


def test_the_first_literal_is_found() -> None:
    assert TAGS.find("x [A] <call> ", 0, is_finished=False) == 2
    assert TAGS.find("x [A] <call> ", 3, is_finished=False) == 6


@pytest.mark.parametrize(
    ("text", "place"),
    [("abc<", 3), ("abc<cal", 3), ("abc<call>", 3), ("abc", 3), ("a<b<", 3), ("[A", 0)],
)
def test_what_may_be_a_beginning_ends_the_search_until_the_text_is_finished(
    text: str, place: int
) -> None:
    assert TAGS.find(text, 0, is_finished=False) == place


def test_a_finished_text_has_no_beginnings() -> None:
    assert TAGS.find("abc<cal", 0, is_finished=True) == 7
    assert TAGS.at("<cal", 0, is_finished=True) == ""


def test_a_literal_that_may_be_starting_earlier_comes_before_one_that_is_complete() -> None:
    literals = Literals(("ab", "xabyy"))
    assert literals.find("..xab", 0, is_finished=False) == 2
    assert literals.find("..xab", 0, is_finished=True) == 3


def test_the_longest_literal_counts_once_it_can_be_told() -> None:
    literals = Literals(("```", "```json", "<call>", "<call>>"))
    assert literals.at("```", 0, is_finished=False) is None
    assert literals.at("```js", 0, is_finished=False) is None
    assert literals.at("```jx", 0, is_finished=False) == "```"
    assert literals.at("```json", 0, is_finished=False) == "```json"
    assert literals.at("```", 0, is_finished=True) == "```"


def test_no_text_decides_nothing_until_it_is_finished() -> None:
    assert TAGS.at("abc", 3, is_finished=False) is None
    assert TAGS.at("abc", 3, is_finished=True) == ""
    assert TAGS.at("abc", 1, is_finished=False) == ""


def test_no_literals_are_found_nowhere() -> None:
    nothing = Literals(())
    assert nothing.find("abc", 1, is_finished=False) == 3
    assert nothing.at("abc", 1, is_finished=False) == ""


def test_against_an_obvious_oracle() -> None:
    known = ("ab", "abc", "ba", "cc")
    literals = Literals(known)
    alphabet = "abc"
    texts = [a + b + c + d for a in alphabet for b in alphabet for c in alphabet for d in alphabet]
    for text in texts:
        for start in range(5):
            complete = [i for i in range(start, 4) if text.startswith(known, i)]
            begun = [
                i
                for i in range(start, 4)
                if any(literal.startswith(text[i:]) and literal != text[i:] for literal in known)
            ]
            assert literals.find(text, start, is_finished=True) == min([*complete, 4])
            assert literals.find(text, start, is_finished=False) == min([*complete, *begun, 4])


def test_the_same_literals_are_prepared_once() -> None:
    assert literals_of("a", "b") is literals_of("a", "b")
