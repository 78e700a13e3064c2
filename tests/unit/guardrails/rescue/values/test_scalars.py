import pytest

from proxy.conversation.json import JsonValue
from proxy.guardrails.rescue.values.cursor import Cursor
from proxy.guardrails.rescue.values.scalars import interpret, read_bare
from tests.fakes.arrivals import is_linear, read, run


@pytest.mark.parametrize(
    ("text", "value"),
    [("true", True), ("None", None), ("5", 5), ("05", "05"), ("so it is", "so it is")],
)
def test_the_function_interpret_reads_bare_text_as_a_constant_a_number_or_a_string(
    text: str, value: JsonValue
) -> None:
    assert interpret(text) == value


def read_bare_text(text: str, *, is_item: bool = False) -> tuple[str | None, str]:
    return read(lambda cursor: read_bare(cursor, ("</x>",), is_item=is_item), text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a, b and c", "a, b and c"),
        ('it\'s "so", he said', 'it\'s "so", he said'),
        ("at 5, 10:30", "at 5, 10:30"),
        ("a,http://x.y", "a,http://x.y"),
        ("f(a, b: c) [d, e: f] {g, h: i}", "f(a, b: c) [d, e: f] {g, h: i}"),
        ("1 < 2, if so :)", "1 < 2, if so :)"),
        ("one\ntwo", "one\ntwo"),
        ("  x  ", "x"),
        ("", ""),
    ],
)
@pytest.mark.parametrize("end", ["}", "]", ",key:1}", ", key : 1}", "</x>", '<|"|>', ""])
def test_bare_text_ends_at_the_next_key_or_at_a_bracket_or_at_an_end_mark(
    text: str, value: str, end: str
) -> None:
    assert read_bare_text(text + end) == (value, end)


def test_a_comma_outside_brackets_ends_a_bare_item() -> None:
    assert read_bare_text("a b, c]", is_item=True) == ("a b", ", c]")
    assert read_bare_text("f(a, b), c]", is_item=True) == ("f(a, b)", ", c]")


@pytest.mark.parametrize("text", ["a (b", "a (b}", "a { b</x>", "a [b}"])
def test_bare_text_with_unbalanced_brackets_is_refused(text: str) -> None:
    assert read_bare_text(text)[0] is None


def test_bare_text_with_64_or_more_pairs_of_brackets_is_refused() -> None:
    assert read_bare_text("(" * 63 + ")" * 63 + "}")[0] is not None
    assert read_bare_text("(" * 64 + ")" * 64 + "}")[0] is None


@pytest.mark.deep
@pytest.mark.parametrize("unit", [",", ",a", ", a ", "(", "()", "<", "</", "a", "{}"])
def test_reading_bare_text_takes_linear_time(unit: str) -> None:
    def read_all(text: str) -> None:
        cursor = Cursor(text, is_finished=True)
        run(cursor, read_bare(cursor, ("</x>",), is_item=False), [])

    assert is_linear(read_all, lambda size: unit * (size // len(unit)), 40_000)
