# ruff: noqa: RUF001 - the tests contain curly quotation marks

import json
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy import bounds
from proxy.conversation.json import JsonObject, JsonValue
from proxy.guardrails.rescue.syntax import NoCall
from proxy.guardrails.rescue.values.cursor import Cursor
from proxy.guardrails.rescue.values.reader import (
    OpenContainer,
    read_only_value,
    read_value,
    skip_comments,
)
from proxy.guardrails.rescue.values.scalars import PYTHON, MemberWatcher, Style, Unreadable, Value
from tests.fakes.arrivals import attempt, is_linear, outcome, read, run


def test_the_search_for_member_runs_is_postponed_after_a_short_or_missing_run() -> None:
    members = OpenContainer([], "]")
    assert [members.is_search_due() for _ in range(8)] == [False] * 7 + [True]
    members.record_search(1_000, 500)
    assert members.is_search_due()
    members.record_search(1_280, 0)
    assert [members.is_search_due() for _ in range(12)] == [False] * 11 + [True]


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("// one\n x", "x"),
        ("# one\n\n# two\n/* three\n */ x", "x"),
        ("/* one */x", "x"),
        ("/***/ // two\nx", "x"),
        ("# one", ""),
        ("/* one", ""),
    ],
)
def test_comments_and_the_space_after_them_are_skipped(text: str, rest: str) -> None:
    def skip_all(text: str) -> tuple[bool, str]:
        has_comments, remaining = read(skip_comments, text)
        return (has_comments, remaining) if remaining == rest else skip_all(remaining)

    assert skip_all(text) == (True, rest)


@pytest.mark.parametrize("text", ["/ x", "x", "", "/"])
def test_skip_comments_does_not_consume_text_without_comments(text: str) -> None:
    assert read(skip_comments, text) == (False, text)


scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
documents = st.recursive(
    scalars.filter(lambda value: value not in (float("inf"), float("-inf"))),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def value_in(text: str) -> Value | Unreadable:
    """Read a text that is a single value; assert that the result is the same at any chunking."""
    result, rest = attempt(lambda cursor: read_value(cursor), text)
    if isinstance(result, Value) and rest.strip():
        result = Unreadable("unexpected")
    assert read_only_value(text) == result
    return result


@settings(deadline=None)
@given(documents, st.booleans(), st.sampled_from([None, 1]))
def test_strict_json_is_read_like_the_standard_library(
    document: JsonValue, is_ascii: bool, indent: int | None
) -> None:
    text = json.dumps(document, ensure_ascii=is_ascii, indent=indent)
    assert read_only_value(text) == Value(document)


@settings(deadline=None)
@given(st.text(alphabet="{}[]:,\"'\\ntu0d8-1.e ", max_size=40))
def test_any_text_is_read_or_refused_without_an_error(text: str) -> None:
    result = read_only_value(text)
    try:
        expected: JsonValue = json.loads(text)
    except ValueError:
        assert isinstance(result, Value | Unreadable)
    else:
        assert result == Value(expected)


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        (f"[{'1,' * 200_000}]", 100_000),
        # a lower limit, because these items are read one by one, which is slow
        (f"[{'[],' * 1000}]", 1000),
        (f"[{'x y,' * 2000}]", 1000),
        (f"{{{'a:1,' * 2000}}}", 1000),
        (f"[{'[1.5 ,x],' * 1000}]", 1000),
    ],
)
def test_a_value_with_too_many_members_is_refused_as_too_long(
    text: str, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "MEMBERS", limit)

    def read_in(pieces: list[str]) -> Value | Unreadable | NoCall:
        cursor = Cursor()
        reading = read_value(cursor, None, Style(has_bare_text=True))
        return run(cursor, outcome(reading), pieces)[0]

    assert read_in([text]) == Unreadable("too_long")
    assert read_in([text[start : start + 999] for start in range(0, len(text), 999)]) == Unreadable(
        "too_long"
    )


def test_strings_of_any_length_are_read() -> None:
    text = json.dumps([{"a": "x, " * 100_000, "b": ["y" * 1_000] * 1_000}])
    assert isinstance(read_only_value(text), Value)


def test_a_value_with_too_many_levels_is_refused_as_too_deep() -> None:
    deep = "[" * bounds.LEVELS + "]" * bounds.LEVELS
    assert isinstance(read_only_value(deep), Value)
    assert read_only_value(f"[{deep}]") == Unreadable("too_deep")
    assert read_only_value("{a:" * 100_000) == Unreadable("too_deep")


@pytest.mark.parametrize("number", ["9" * 1001, "1e999", "[1e999]", "-" + "9" * 5000])
def test_numbers_with_too_many_digits_or_too_large_exponents_are_refused(number: str) -> None:
    assert read_only_value(number) == Unreadable("too_long")


class RecordingWatcher(MemberWatcher):
    """Records the reported members and stops the reading at one key."""

    def __init__(self, unwanted: str = "") -> None:
        self.reports: list[str] = []
        self._unwanted = unwanted

    def enters(self, path: Sequence[str | None], members: JsonObject) -> bool:
        self.reports.append(f"+{path} {sorted(members)}")
        return path[-1] != self._unwanted

    def adds(self, items: Sequence[JsonValue]) -> bool:
        return True

    def leaves(self, path: Sequence[str | None]) -> None:
        self.reports.append(f"-{path}")


def test_a_watcher_is_called_for_every_member_in_order() -> None:
    names = []
    for text in ('{"a": [{"b": 1}], c: "d"}',):
        watcher = RecordingWatcher()
        cursor = Cursor(text, is_finished=True)
        with pytest.raises(StopIteration):
            next(read_value(cursor, watcher))
        names = watcher.reports
    assert names == [
        "+['a'] []",
        "+['a', None, 'b'] []",
        "-['a', None, 'b']",
        "-['a']",
        "+['c'] ['a']",
        "-['c']",
    ]


def test_a_watcher_can_stop_the_reading_before_the_value_of_a_key() -> None:
    result = attempt(lambda cursor: read_value(cursor, RecordingWatcher("b")), '{"a": 1, "b": [1]}')
    assert result == (Unreadable("unwanted"), "[1]}")


@pytest.mark.parametrize(
    "unit", ["{", "[", '"', "'", "a", "1", "\\", '{"a":', "[1,", '["a",', '"\\u00', "'\\'", "[{}"]
)
def test_reading_a_flood_of_brackets_and_quotation_marks_takes_linear_time(unit: str) -> None:
    def text(size: int) -> str:
        return '["' + unit * (size // len(unit))

    assert is_linear(read_only_value, text, 10_000)
    assert is_linear(read_only_value, lambda size: "[" + text(size)[3:], 10_000)


def read_in_style(text: str, style: Style) -> tuple[Value | Unreadable | NoCall, str]:
    return attempt(lambda cursor: read_value(cursor, None, style), text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("(a=1, b='x', c=None)", {"a": 1, "b": "x", "c": None}),
        ("()", {}),
        ("(a=(1, 2), b={'x', 'y'}, c={'k': 'v'})", {"a": [1, 2], "b": ["x", "y"], "c": {"k": "v"}}),
        ("(a='sed -n '1,2p' file', b=\"[x('y')]\")", {"a": "sed -n '1,2p' file", "b": "[x('y')]"}),
        ("(a=['f('x')', 'z'])", {"a": ["f('x')", "z"]}),
        ("(a='f('x'))')", {"a": "f('x'))"}),
    ],
)
def test_the_python_style_reads_tuples_and_sets_and_keyword_arguments(
    text: str, value: JsonValue
) -> None:
    assert read_in_style(text + "\nrest", PYTHON) == (Value(value), "\nrest")


@pytest.mark.parametrize("text", ["(1, 2)", "(a, b)", "(a=1, {'x', 'y'})", "({a})"])
def test_the_python_style_refuses_positional_arguments(text: str) -> None:
    assert isinstance(read_in_style(text, PYTHON)[0], Unreadable)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{a:New York,b:10:30,c:true,d:5}", {"a": "New York", "b": "10:30", "c": True, "d": 5}),
        ("{a:[x y,z]}", {"a": ["x y", "z"]}),
        ("{a:#fff,b:“c”,d:\\\\e}", {"a": "#fff", "b": "“c”", "d": "\\\\e"}),
    ],
)
def test_bare_text_is_read_if_the_style_allows_it(text: str, value: JsonValue) -> None:
    assert read_in_style(text, Style(has_bare_text=True)) == (Value(value), "")
    assert isinstance(read_in_style("{a:New Yo", Style(has_bare_text=True))[0], Unreadable)


def test_the_last_bracket_may_be_missing_before_an_end_mark() -> None:
    style = Style(ends=("</x>",))
    value = Value({"a": "b"})
    assert read_in_style('{"a": "b"</x>', style) == (value, "</x>")
    assert read_in_style('{"a": "b" </x>', style) == (value, "</x>")
    assert read_in_style('{"a": 1</x>', style) == (Value({"a": 1}), "</x>")
    assert isinstance(read_in_style('{"a": {"b": "c"</x>', style)[0], Unreadable)
    assert isinstance(read_in_style('{"a": "b"</y>', style)[0], Unreadable)


def test_a_string_with_unescaped_quotation_marks_ends_before_an_end_mark() -> None:
    style = Style(ends=("</x>",))
    text = '{"a": "5" c"}</x> {"d": "e"}</x>'
    assert read_in_style('{"a": "5" c}</x> and "d"', style)[1] == '"d"'
    assert read_in_style(text, style) == (Value({"a": '5" c'}), '</x> {"d": "e"}</x>')


def test_a_string_is_read_even_if_a_key_or_space_longer_than_the_lookahead_follows() -> None:
    key = "k" * 300
    assert value_in(f'{{"a": "b", "{key}": 1}}') == Value({"a": "b", key: 1})
    assert value_in(f'{{"a": "b"{" " * 300}, "c": 1}}') == Value({"a": "b", "c": 1})


MANY = 24
ITEMS: list[tuple[str, JsonValue]] = [
    ('"a"', "a"),
    ("-1.5", -1.5),
    ("true", True),
    ('{"b": [1, {}]}', {"b": [1, {}]}),
    ("'a'", "a"),
    ("None", None),
    ("{b: 1}", {"b": 1}),
    ('{"b": 1, "b": 1}', {"b": 1}),
    ('"it is "so" here"', 'it is "so" here'),
]


@pytest.mark.parametrize(("item", "value"), ITEMS)
@pytest.mark.parametrize("separator", [",", ", ", "\n,\n"])
def test_a_list_of_many_equal_items_is_read_like_its_single_item(
    item: str, value: JsonValue, separator: str
) -> None:
    text = f"[{separator.join([item] * MANY)}]"
    assert value_in(text) == Value([value] * MANY)


@pytest.mark.parametrize("item", ['"a"', '{"a": 1}', "['a']"])
def test_the_items_of_a_long_list_may_be_separated_by_spaces(item: str) -> None:
    value = read_only_value(item)
    assert isinstance(value, Value)
    expected = Value([value.value] * MANY)
    assert value_in(f"[{' '.join([item] * MANY)}]") == expected


def test_an_object_with_many_members_is_read_completely() -> None:
    members: JsonObject = {f"k{number}": number for number in range(MANY)}
    text = json.dumps(members)
    assert value_in(text) == Value(members)
    assert value_in(text[:-1] + ', "k1": 1}') == Value(members)
    doubled = text[:-1] + ", " + text[1:]
    assert value_in(doubled) == Value(members)
    keywords = ", ".join(f"{key}={value}" for key, value in members.items())
    assert read_in_style(f"({keywords})", PYTHON)[0] == Value(members)


@pytest.mark.parametrize("count", [0, 1, MANY])
@pytest.mark.parametrize("second", ['"k": 2', '"k": {"a": 1}', "k: 2", '"k": 1, "k": 2'])
def test_an_object_with_two_values_for_one_key_is_refused(count: int, second: str) -> None:
    others = "".join(f'"o{number}": {number}, ' for number in range(count))
    for text in (
        f'{{"k": 1, {others}{second}}}',
        f'{{{others}"k": 1, {second}, "z": 1}}',
        f'{{"in": [{{"k": 1, {others}{second}}}, {others and "1"}], "z": 1}}',
    ):
        assert value_in(text) == Unreadable("unexpected")
    keywords = "".join(f"o{number}={number}, " for number in range(count))
    assert read_in_style(f"(k=1, {keywords}k=2)", PYTHON)[0] == Unreadable("unexpected")


def test_the_depth_limit_also_applies_inside_a_long_list() -> None:
    deep = f"{'[' * (bounds.LEVELS - 1)}{'[[]],' * MANY}"
    assert read_only_value(deep) == Unreadable("too_deep")


def test_a_watcher_is_called_for_every_member_of_a_large_object() -> None:
    members = ", ".join(f'"k{number}": {{"a": 1}}' for number in range(MANY))
    for text, names in (
        (f"{{{members}}}", 4 * MANY),
        (f"[{'{}, ' * MANY}{{{members}}}]", 4 * MANY),
    ):
        watcher = RecordingWatcher()
        cursor = Cursor(text, is_finished=True)
        list(read_value(cursor, watcher))
        assert len(watcher.reports) == names


def test_after_start_arguments_the_watcher_is_called_for_only_some_members() -> None:
    members = {f"k{number}": number for number in range(2 * MANY)}
    cursor = Cursor(json.dumps(members), is_finished=True)
    cursor.start_arguments("f")
    watcher = RecordingWatcher()
    list(read_value(cursor, watcher))
    assert len(watcher.reports) < 2 * len(members)
    assert cursor.take_echo() == json.dumps(members)


@pytest.mark.parametrize(
    "unit",
    ['"a",', "1,", '{"a":1},', '{"a":1}', "[[[]]],", "'a',", "None,", "[" * 9 + "]" * 9 + ","],
)
def test_reading_a_list_without_an_end_takes_linear_time(unit: str) -> None:
    assert is_linear(read_only_value, lambda size: "[" + unit * (size // len(unit)), 40_000)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # an unambiguous text is read
        ("{'a': 'b'}", Value({"a": "b"})),
        ('{"a": True, "b": False, "c": None}', Value({"a": True, "b": False, "c": None})),
        ('{"a": [1, 2,], }', Value({"a": [1, 2]})),
        ("{a: 1, b_2: 2, $c-d.e: 3}", Value({"a": 1, "b_2": 2, "$c-d.e": 3})),
        ('{"a": "one\ntwo\tthree"}', Value({"a": "one\ntwo\tthree"})),
        ('{"a": [1], "a": [1]}', Value({"a": [1]})),
        ('"C:\\data \\d+ \\\'"', Value("C:\\data \\d+ \\'")),
        (r"'it\'s \"so\"'", Value('it\'s "so"')),
        (r'"\u12 \uD83D \uDE00 \ud83d\u0041"', Value("\\u12 \ufffd \ufffd \ufffdA")),
        (r'"\uzzzz"', Value(r"\uzzzz")),
        ('{"a": 1 "b": 2}', Value({"a": 1, "b": 2})),
        ('{"a": "x"\n"b": "y" }', Value({"a": "x", "b": "y"})),
        ('[{"a": 1} {"b": [1] }, "c" "d"]', Value([{"a": 1}, {"b": [1]}, "c", "d"])),
        ('{ // one\n"a": /* two */ 1 /* three */, // four\n}', Value({"a": 1})),
        (
            '{ # one\n"a": 1, # two\n#\n# three\n"b" # four\n: [2 # five\n]}',
            Value({"a": 1, "b": [2]}),
        ),
        ('{"a": "b", # c\n "d": "e" # f\n}', Value({"a": "b", "d": "e"})),
        ("[/*/ 1 */ 2 /***//**/ //\n, 3 /* 4 * / */]", Value([2, 3])),
        ('{"a": "he said "no""}', Value({"a": 'he said "no"'})),
        ('{"a": "x = y["k"]", "b": [1]}', Value({"a": 'x = y["k"]', "b": [1]})),
        ('{"a": {"b": "he said "no", then left"}}', Value({"a": {"b": 'he said "no", then left'}})),
        ('{"a": ["x "y" z", "w", true]}', Value({"a": ['x "y" z', "w", True]})),
        ('{"a": "b/c "d"/e"}', Value({"a": 'b/c "d"/e'})),
        ("{'a': 'it's'}", Value({"a": "it's"})),
        ('{"a": """x "y"\nz"""}', Value({"a": 'x "y"\nz'})),
        (
            '{<|"|>a<|"|>: <|"|>say "no"<|"|>, b: <escape>x\\n<escape>}',
            Value({"a": 'say "no"', "b": "x\\n"}),
        ),
        ("{&quot;a&quot;: &quot;b&quot;}", Value({"a": "b"})),
        ('{{"a": 1}', Value({"a": 1})),
        ("{“a”: “b”, ‘c’: [‘d’, “e “f” g”]}", Value({"a": "b", "c": ["d", "e “f” g"]})),
        (r"{\"a\": \"b \\\"c\\\"\", \"d\": [1]}", Value({"a": 'b "c"', "d": [1]})),
        # strict JSON is read
        ('{"a": {"b": [1, {}]}}', Value({"a": {"b": [1, {}]}})),
        (r'"\"\\\/\b\f\n\r\t\u0041\ud83d\ude00"', Value('"\\/\b\f\n\r\tA😀')),
        ("[-0, 10, 1.5, 2E3, 1e-2]", Value([0, 10, 1.5, 2000.0, 0.01])),
        (" 12 ", Value(12)),
        ("[]", Value([])),
        ("{}", Value({})),
        # closing brackets may be missing at the end
        ('{"a": {"b": "c"', Value({"a": {"b": "c"}}, is_closed=False)),
        ('[1, [true, "x"]', Value([1, [True, "x"]], is_closed=False)),
        ('{"a": 1 ', Value({"a": 1}, is_closed=False)),
        ('{"a": {}', Value({"a": {}}, is_closed=False)),
        # a truncated value is never completed
        ("", Unreadable("cut_off")),
        ("  ", Unreadable("cut_off")),
        ("{", Unreadable("cut_off")),
        ("[", Unreadable("cut_off")),
        ('{"a', Unreadable("cut_off")),
        ('{"a"', Unreadable("cut_off")),
        ('{"a":', Unreadable("cut_off")),
        ('{"a": "b', Unreadable("cut_off")),
        ('{"a": "b\\', Unreadable("cut_off")),
        ('{"a": "b\\u00', Unreadable("cut_off")),
        ('{"a": 12', Unreadable("cut_off")),
        ('{"a": 1,', Unreadable("cut_off")),
        ("[1,", Unreadable("cut_off")),
        ("[1, [", Unreadable("cut_off")),
        ('{"a": <escape>b', Unreadable("cut_off")),
        ('{"a": "b "c" e", d', Unreadable("cut_off")),
        ('{"a": "b",', Unreadable("cut_off")),
        # invalid values are refused
        ("NaN", Unreadable("unexpected")),
        ("Infinity", Unreadable("unexpected")),
        ("-Infinity", Unreadable("unexpected")),
        ("undefined", Unreadable("unexpected")),
        ("tru", Unreadable("unexpected")),
        ("01", Unreadable("unexpected")),
        ("+1", Unreadable("unexpected")),
        ("1.", Unreadable("unexpected")),
        (".5", Unreadable("unexpected")),
        ("1.2.3", Unreadable("unexpected")),
        ("--1", Unreadable("unexpected")),
        ("{1: 2}", Unreadable("unexpected")),
        ('{"a" 1}', Unreadable("unexpected")),
        ("[1 2]", Unreadable("unexpected")),
        ("[,]", Unreadable("unexpected")),
        ("{,}", Unreadable("unexpected")),
        ("[1}", Unreadable("unexpected")),
        ('{"a": 1]', Unreadable("unexpected")),
        ('{"a": 1 b: 2}', Unreadable("unexpected")),
        ('{"a": 1 /', Unreadable("unexpected")),
        ('{"a", "b"}', Unreadable("unexpected")),
        ("{{{", Unreadable("unexpected")),
        ("<b>", Unreadable("unexpected")),
        ("[1 {}]", Unreadable("unexpected")),
        ("(1, 2)", Unreadable("unexpected")),
        ("[1] 2", Unreadable("unexpected")),
        ("}", Unreadable("unexpected")),
        ("é", Unreadable("unexpected")),
        ("[“a” “b”]x", Unreadable("unexpected")),
        (r"\n", Unreadable("unexpected")),
        (r"[1, \n", Unreadable("unexpected")),
        (r"{\n", Unreadable("unexpected")),
        ("{\\", Unreadable("unexpected")),
        # a string is refused if it is unclear which quotation mark ends it
        ('{"a": "a 5" disk", "b": 1}', Unreadable("unexpected")),
        ('{"a": "a 5" disk" "b": 1}', Unreadable("unexpected")),
        ('{"a": {"b": "a 5" disk"}, "c": 1}', Unreadable("unexpected")),
        ('{"a": "call it {"name": "f", "arguments": {"b": 1}} so"}', Unreadable("unexpected")),
        ('{"a": "see {"b": "c", "d": "e"} so"}', Unreadable("unexpected")),
        ('{"a": "it is "so", <tool_call>"}', Unreadable("unexpected")),
        ('{"<tool_call>": 1}', Unreadable("unexpected")),
    ],
)
def test_a_value_with_syntax_errors_is_read_only_if_it_is_unambiguous(
    text: str, expected: Value | Unreadable
) -> None:
    assert value_in(text) == expected


def test_text_after_a_final_string_with_unescaped_quotation_marks_is_refused() -> None:
    text = '{"a": "a 5" disk"}'
    good = Value({"a": 'a 5" disk'})
    assert value_in(text) == good
    assert read_in_style(f"{text}</tool_call>", PYTHON) == (good, "</tool_call>")
    assert read_in_style(f"{text} so", PYTHON) == (Unreadable("unexpected"), " so")
    paired = '{"a": "say "no""}'
    assert read_in_style(f'{paired} so"}}', PYTHON) == (Unreadable("unexpected"), ' so"}')


def test_digits_with_a_leading_zero_are_read_as_text_in_python_calls() -> None:
    value = Value({"code": "00501", "n": 5})
    assert read_in_style("(code=00501, n=5)", PYTHON) == (value, "")


SEVERAL_WINDOWS = 2_000  # more members than fit into the window that the reader searches at once


@pytest.mark.parametrize("member", ['"a":1,', "a:1,", '"a":{"b":[1,2]},', "'a':True,"])
def test_repeated_members_with_equal_keys_and_values_are_read_once(member: str) -> None:
    once = read_only_value("{" + member * 2 + '"z":0}')
    many = read_only_value("{" + member * SEVERAL_WINDOWS + '"z":0}')
    assert isinstance(once, Value)
    assert isinstance(many, Value)
    assert many == once


@pytest.mark.parametrize("member", ['"a":1,', "a:1,"])
@pytest.mark.parametrize("index", [5, 50, SEVERAL_WINDOWS])
def test_two_values_for_one_key_are_refused_at_any_position(member: str, index: int) -> None:
    other = member.replace("1", "2")
    text = "{" + member * index + other + member * SEVERAL_WINDOWS + '"z":0}'
    assert not isinstance(read_only_value(text), Value)


def test_two_values_for_one_key_are_refused_even_with_many_members_between_them() -> None:
    others = ",".join(f'"k{number}":0' for number in range(20))
    assert not isinstance(read_only_value(f'{{"z":1,{others},"z":2,"y":0,"x":0}}'), Value)
