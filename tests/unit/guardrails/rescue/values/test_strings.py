# ruff: noqa: RUF001 - the tests contain typographic quotation marks

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from proxy.guardrails.rescue.values.cursor import Cursor, Waiting
from proxy.guardrails.rescue.values.strings import (
    Quoted,
    StringContext,
    StringDoubt,
    can_end,
    is_end,
    is_last,
    judge_doubt,
    may_end,
    pattern_inside,
    read_between,
    read_plain_string,
    read_string,
)
from tests.examples import examples
from tests.fakes.arrivals import is_linear, read

CONTEXTS = [
    StringContext("}"),
    StringContext("}", "}"),
    StringContext("]", "}", is_list=True),
    StringContext("]", is_list=True),
    StringContext(")"),
    StringContext(")", ")", is_list=True),
    StringContext("}", "]", ends=("</x>", "<|end|>")),
    StringContext("}", ends=("]!",)),
]
TEXTS = st.lists(
    st.sampled_from(
        [
            *"\"',:=/<&{}[]() \n#“”’",
            "a",
            "é",
            "1",
            "true",
            "f(",
            "x y",
            "b:",
            "</x>",
            " " * 41,
            "k" * 81,
        ]
    ),
    max_size=8,
).map("".join)


def ends(following: str, context: StringContext) -> bool:
    """Return whether a quotation mark before this text ends the string."""
    cursor = Cursor(following, is_finished=True)

    def reading() -> Waiting[None]:
        results.append((yield from is_end(cursor, context)))

    results: list[bool] = []
    list(reading())
    return results[0]


@settings(deadline=None, max_examples=examples(400))
@given(TEXTS, st.sampled_from(CONTEXTS), st.sampled_from("\"'”’"))
@example(" b", CONTEXTS[0], '"')
@example(", then left", CONTEXTS[0], '"')
@example(', "b" c', CONTEXTS[0], '"')
@example(' "b" c', CONTEXTS[0], '"')
@example('"b', CONTEXTS[2], '"')
@example(", b c", CONTEXTS[2], '"')
@example("} c", CONTEXTS[1], '"')
@example(')"', CONTEXTS[4], '"')
@example(" # b", CONTEXTS[0], '"')
@example(", # b", CONTEXTS[2], '"')
@example(", #b", CONTEXTS[0], '"')
@example(", “b”: c", CONTEXTS[0], "”")
def test_the_pattern_from_pattern_inside_matches_no_end_of_the_string(
    following: str, context: StringContext, quote: str
) -> None:
    match = pattern_inside(quote, context).match(quote + following)
    consumed = match[0] if match else ""
    quotes = [index for index, char in enumerate(consumed) if char == quote]
    assert not any(ends((quote + following)[index + 1 :], context) for index in quotes)
    assert not any(end in consumed for end in context.ends)


@pytest.mark.parametrize(
    ("text", "context"),
    [
        ('" b" c "d" e', CONTEXTS[0]),
        ('", then left', CONTEXTS[0]),
        ('", "b" c', CONTEXTS[0]),
        ('"b"c', CONTEXTS[2]),
        ('", b" c', CONTEXTS[2]),
        ('"} c', CONTEXTS[1]),
        ('\\n\\d" b', CONTEXTS[0]),
        ('" b</y" c', CONTEXTS[6]),
    ],
)
def test_the_pattern_from_pattern_inside_matches_all_quotation_marks_inside_a_string(
    text: str, context: StringContext
) -> None:
    match = pattern_inside('"', context).match(text)
    assert match is not None
    assert '"' not in text[match.end() :]


def test_the_pattern_from_pattern_inside_stops_before_a_mark_that_ends_the_value() -> None:
    match = pattern_inside('"', CONTEXTS[6]).match('" b" c </x> " c')
    assert match is not None
    assert match[0] == '" b"'


@pytest.mark.parametrize(
    ("text", "context", "expected"),
    [
        ('"a", "b": 1', StringContext("}"), True),
        ('"a" b', StringContext("}"), False),
        ('"a"', StringContext("}"), False),
        ('"a" b', StringContext(), True),
        ('"a" b', StringContext("}", is_key=True), True),
    ],
)
def test_a_string_can_end_only_if_the_following_text_proves_it(
    text: str, context: StringContext, expected: bool
) -> None:
    assert can_end(Cursor(text), context, 3) is expected


def test_whether_a_string_ends_is_decided_alike_at_any_chunking() -> None:
    for text, expected in (('} , "c": 1', True), (", then left", False), ('"b": 1', True)):
        assert read(lambda cursor: is_end(cursor, StringContext("}", "}")), text) == (
            expected,
            text,
        )


@pytest.mark.parametrize(
    ("text", "quotes", "doubt"),
    [
        ('say "no" and "yes"', '""', StringDoubt.PAIRED),
        ('x = y["k"]', '""', StringDoubt.PAIRED),
        ("it's", "''", StringDoubt.PAIRED),
        ("f('x'), it's", "''", StringDoubt.PAIRED),
        ("e “f” g", "“”", StringDoubt.PAIRED),
        ('a 5" disk', '""', StringDoubt.UNPAIRED),
        ('3" by 5" and', '""', StringDoubt.UNPAIRED),
        (r'an escaped \" and a 5" disk', '""', StringDoubt.UNPAIRED),
        ("the dogs' bone", "''", StringDoubt.UNPAIRED),
        ('{"a": "b', '""', StringDoubt.TORN),
        ('say "hi', '""', StringDoubt.TORN),
        ('"x', '""', StringDoubt.TORN),
        ('x"', '""', StringDoubt.TORN),
        ('x" y', '""', StringDoubt.TORN),
        ('say "a", then "b', '""', StringDoubt.TORN),
        ('say ""hi"" now', '""', StringDoubt.TORN),
        (", \"b\": 'x'", '""', StringDoubt.TORN),
        ('x, "b": ', '""', StringDoubt.TORN),
        ('if s == "": pass', '""', StringDoubt.PAIRED),
        ('one"\n{"second": "two', '""', StringDoubt.TORN),
        ('see ["x", "y', '""', StringDoubt.TORN),
        ("one'][f(a='two", "''", StringDoubt.TORN),
        ('a "b" <tool_call>', '""', StringDoubt.TORN),
        ('{"name": "f"}', '""', StringDoubt.TORN),
    ],
)
def test_judge_doubt_classifies_the_unescaped_quotation_marks_of_a_string(
    text: str, quotes: str, doubt: StringDoubt
) -> None:
    assert judge_doubt(text, quotes[0], quotes[1]) is doubt


@pytest.mark.parametrize(
    ("following", "is_good", "doubt"),
    [
        ("", True, StringDoubt.UNPAIRED),
        (" \n ", True, StringDoubt.UNPAIRED),
        ("\n</tool_call>", True, StringDoubt.UNPAIRED),
        ("}]", True, StringDoubt.UNPAIRED),
        ("</x>", True, StringDoubt.UNPAIRED),
        ("<|im_end|>", True, StringDoubt.UNPAIRED),
        ("</b>", False, StringDoubt.UNPAIRED),
        ('"}', False, StringDoubt.UNPAIRED),
        (" so", False, StringDoubt.UNPAIRED),
        ("\nSo it is, and a good many words more", False, StringDoubt.UNPAIRED),
        ("", True, StringDoubt.PAIRED),
        ("\nso", True, StringDoubt.PAIRED),
        (", f()", True, StringDoubt.PAIRED),
        (" so", False, StringDoubt.PAIRED),
        (' "}', False, StringDoubt.PAIRED),
    ],
)
def test_the_text_after_unescaped_quotation_marks_decides_whether_the_value_may_end(
    following: str, is_good: bool, doubt: StringDoubt
) -> None:
    def start(cursor: Cursor) -> Waiting[bool]:
        return may_end(cursor, doubt, ("</x>",))

    assert read(start, following) == (is_good, following)


@pytest.mark.parametrize(
    ("text", "is_end"), [("</x>", True), ("</x> \n", True), ("</x> a", False), ("</x>" * 9, False)]
)
def test_a_mark_is_last_if_only_white_space_follows(text: str, is_end: bool) -> None:
    assert read(lambda cursor: is_last(cursor, "</x>"), text) == (is_end, text)


def test_a_mark_is_not_last_if_the_white_space_after_it_exceeds_the_lookahead() -> None:
    assert not read(lambda cursor: is_last(cursor, "</x>"), f"</x>{' ' * 64}")[0]


OBJECT = StringContext("}")
INNER = StringContext("}", "}")
LIST = StringContext("]", "}", is_list=True)
MARKED = StringContext("}", ends=("</x>",))


def string_in(text: str, context: StringContext) -> tuple[Quoted, str]:
    return read(lambda cursor: read_string(cursor, text[0], context), text)


@pytest.mark.parametrize(
    ("text", "context", "rest"),
    [
        ('"a" b', StringContext(), " b"),
        ('"a" b', StringContext("}", is_key=True), " b"),
        ('"a"} x', OBJECT, "} x"),
        ('"a" }', OBJECT, " }"),
        ('"a", "b": 1', OBJECT, ', "b": 1'),
        ('"a", b: 1', OBJECT, ", b: 1"),
        ('"a" "b": 1', OBJECT, ' "b": 1'),
        ('"a",}', OBJECT, ",}"),
        ('"a" // x', OBJECT, " // x"),
        ('"a", // x', OBJECT, ", // x"),
        ('"a" # x', OBJECT, " # x"),
        ('"a", # x', OBJECT, ", # x"),
        ('"a", “b”: 1', OBJECT, ", “b”: 1"),
        ('"a", “b”', LIST, ", “b”"),
        ('"a" “b”: 1', OBJECT, " “b”: 1"),
        ('"a"}}', INNER, "}}"),
        ('"a"} , "c": 1', INNER, '} , "c": 1'),
        ('"a"] }', LIST, "] }"),
        ('"a", 1', LIST, ", 1"),
        ('"a", true]', LIST, ", true]"),
        ('"a" "b"', LIST, ' "b"'),
        ('"a"</x>', MARKED, "</x>"),
        ('"a"', OBJECT, ""),
        ('"a" ', OBJECT, " "),
        ('"a",', OBJECT, ","),
        ('"a"}', INNER, "}"),
        ('"a")', StringContext(")"), ")"),
    ],
)
def test_a_string_ends_at_the_quotation_mark_after_which_the_text_fits(
    text: str, context: StringContext, rest: str
) -> None:
    assert string_in(text, context) == (Quoted("a"), rest)


@pytest.mark.parametrize(
    ("text", "context", "value"),
    [
        ('"a "b" c"}', OBJECT, 'a "b" c'),
        ('"a "b", c"}', OBJECT, 'a "b", c'),
        ('"a "b"! c", "d": 1', OBJECT, 'a "b"! c'),
        ('"f({"b"} c)"}}', INNER, 'f({"b"} c)'),
        ('"a "b", c and d"]}', LIST, 'a "b", c and d'),
        ('"a"b"]}', LIST, 'a"b'),
        ('"a "b"</y>"}', MARKED, 'a "b"</y>'),
        ('"a "b"/c"}', OBJECT, 'a "b"/c'),
        ('"a "b", #1"}', OBJECT, 'a "b", #1'),
        ('"a "b"# c"}', OBJECT, 'a "b"# c'),
        ('"a "b" #1"}', OBJECT, 'a "b" #1'),
        ('"a "b", “c”"}', OBJECT, 'a "b", “c”'),
        ("“a”}", OBJECT, "a"),
        ("“a “b”, c”, “d”: 1", OBJECT, "a “b”, c"),
        ("‘it’s’, 1]", LIST, "it’s"),
        (r"“a\n\"b\"”", StringContext(), 'a\n"b"'),
        (r"\"a\", \"b\": 1", OBJECT, "a"),
        (r"\"say \\\"a\\\"\\n\\\\\"}", OBJECT, 'say "a"\n\\'),
    ],
)
def test_unescaped_quotation_marks_inside_a_string_are_part_of_its_value(
    text: str, context: StringContext, value: str
) -> None:
    quoted, _ = string_in(text, context)
    assert quoted == Quoted(value)


@pytest.mark.parametrize(
    "text", ['"a', '"a\\', '"a\\u0', '"a" b', '"""a""', "“a", r"\"a", r"\"a\\\""]
)
def test_a_string_without_a_closing_quotation_mark_has_no_end(text: str) -> None:
    assert not string_in(text, OBJECT)[0].has_end


def test_literal_text_is_read_up_to_its_mark() -> None:
    result = read(lambda cursor: read_between(cursor, "<q>"), 'a"\\n<q>b')
    assert result == (Quoted('a"\\n'), "b")


@pytest.mark.parametrize("unit", [r"\"", r"\\\""])
def test_reading_a_flood_of_escapes_takes_linear_time(unit: str) -> None:
    def read_complete_string(text: str) -> None:
        cursor = Cursor(text, is_finished=True)
        list(read_string(cursor, "\\", INNER))

    assert is_linear(read_complete_string, lambda size: r"\"" + unit * (size // 2), 8_000)


@pytest.mark.parametrize("unit", ['" ', '"}', '",', '"a', '" "', '"\\', '",a'])
def test_reading_a_flood_of_quotation_marks_takes_linear_time(unit: str) -> None:
    def read_complete_string(text: str) -> None:
        cursor = Cursor(text, is_finished=True)
        list(read_string(cursor, '"', INNER))

    assert is_linear(read_complete_string, lambda size: '"' + unit * (size // 2), 8_000)


@pytest.mark.parametrize(
    ("text", "context", "value", "rest"),
    [
        ('"a", "b": 1', OBJECT, "a", ', "b": 1'),
        ('"a" b', StringContext("}", is_key=True), "a", " b"),
        ('"a" b', OBJECT, None, '"a" b'),
        ('"a\\n", "b": 1', OBJECT, None, '"a\\n", "b": 1'),
        ('"a\n", "b": 1', OBJECT, None, '"a\n", "b": 1'),
        ('""', StringContext(), None, '""'),
        ('"a', StringContext(), None, '"a'),
    ],
)
def test_read_plain_string_reads_only_strings_that_have_no_escapes_and_a_certain_end(
    text: str, context: StringContext, value: str | None, rest: str
) -> None:
    cursor = Cursor(text)
    assert read_plain_string(cursor, context) == value
    assert cursor.look_ahead(99)[0] == rest


@pytest.mark.parametrize(
    "text",
    [
        r'"say \"so\"\n\u0041 \d" "x" he said", then left"}',
        '"a "b" c </x> "d" e"}',
        r'"a "b" \ud83d\ude00 \ud83d "c" d"}',
        '"a "b", "c" d "e" "f" g: h"}',
    ],
)
@pytest.mark.parametrize("context", [OBJECT, INNER, LIST, MARKED])
def test_a_string_with_unescaped_quotation_marks_is_the_same_at_any_chunking(
    text: str, context: StringContext
) -> None:
    string_in(text, context)
