import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.guardrails.unparsed_calls.tokens import attributes, bare_value, token_at, value_place


@pytest.mark.parametrize(
    ("text", "kind", "first"),
    [
        ("<|tool|>x", "control", "<|tool|>"),
        ("<｜tool▁sep｜>x", "control", "<｜tool▁sep｜>"),  # noqa: RUF001
        ("</city>x", "closer", "</city>"),
        ("<city>x", "tag", "<city>"),
        ("```json\n", "fence", "```json"),
        ('"a\\"b"c', "string", '"a\\"b"'),
        ("'a'b", "string", "'a'"),
        ('"a', "torn", '"a'),
        ("<city", "torn", "<city"),
        ("<a<b>", "marks", "<"),
        ("functions.get-it: x", "word", "functions.get-it"),
        ("functions.", "word", "functions."),
        ("({ [x", "marks", "({ ["),
        ("*x", "other", "*"),
    ],
)
def test_a_text_is_cut_into_pieces(text: str, kind: str, first: str) -> None:
    token = token_at(text, 0)
    assert (token.kind, token.text, token.end) == (kind, first, len(first))


def test_an_apostrophe_quotes_nothing() -> None:
    assert token_at("don't", 3).kind == "other"


@given(st.text(alphabet="<>|\"'`\\/ =a.-{\n*", max_size=30))
def test_all_text_is_some_piece(text: str) -> None:
    place = 0
    while place < len(text):
        token = token_at(text, place)
        assert text[place : token.end] == token.text != ""
        place = token.end


def test_a_tag_has_words_and_values() -> None:
    assert [*attributes("<parameter=city>")] == [("parameter", "city")]
    assert [*attributes("<a:b x=\"1 2\" y = '3' z/>")] == [
        ("a:b", ""),
        ("x", "1 2"),
        ("y", "3"),
        ("z", ""),
    ]


@pytest.mark.parametrize("between", ["=", " = ", ":", " => ", " := ", " "])
def test_a_key_is_told_by_what_stands_behind_it(between: str) -> None:
    text = f"city{between}'Paris'"
    assert text[value_place(text, 4) :] == "'Paris'"


@pytest.mark.parametrize("text", ["city Paris", "city", "city, 'Paris'", "city-x"])
def test_any_other_word_is_no_key(text: str) -> None:
    assert value_place(text, 4) == -1


def test_a_bare_value_ends_with_the_line_or_a_mark() -> None:
    assert bare_value("New York, NY", 0) == "New York"
    assert bare_value("New York\nParis", 0) == "New York"
    assert bare_value('"Paris"', 0) == ""
