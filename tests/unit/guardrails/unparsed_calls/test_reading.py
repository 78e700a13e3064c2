import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.guardrails.rescue.syntaxes.tool_names import keys_of
from proxy.guardrails.unparsed_calls.reading import (
    CallReader,
    attributes,
    bare_value,
    token_at,
    value_start,
)
from tests.fakes.playbook import CLOCK, WEATHER, make_tool
from tests.fakes.unread_calls import SEARCH


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
        ('"a', "unclosed", '"a'),
        ("<city", "unclosed", "<city"),
        ("<a<b>", "marks", "<"),
        ("functions.get-it: x", "word", "functions.get-it"),
        ("functions.", "word", "functions."),
        ("({ [x", "marks", "({ ["),
        ("*x", "other", "*"),
    ],
)
def test_the_first_token_is_read_with_its_kind(text: str, kind: str, first: str) -> None:
    token = token_at(text, 0)
    assert (token.kind, token.text, token.end) == (kind, first, len(first))


def test_an_apostrophe_within_a_word_is_not_a_quotation_mark() -> None:
    assert token_at("don't", 3).kind == "other"


@given(st.text(alphabet="<>|\"'`\\/ =a.-{\n*", max_size=30))
def test_the_tokens_of_any_text_are_not_empty_and_cover_the_text(text: str) -> None:
    position = 0
    while position < len(text):
        token = token_at(text, position)
        assert text[position : token.end] == token.text != ""
        position = token.end


def test_the_attributes_of_a_tag_are_its_words_and_values() -> None:
    assert [*attributes("<parameter=city>")] == [("parameter", "city")]
    assert [*attributes("<a:b x=\"1 2\" y = '3' z/>")] == [
        ("a:b", ""),
        ("x", "1 2"),
        ("y", "3"),
        ("z", ""),
    ]


@pytest.mark.parametrize("between", ["=", " = ", ":", " => ", " := ", " "])
def test_value_start_finds_the_value_after_a_key_and_a_separator(between: str) -> None:
    text = f"city{between}'Paris'"
    assert text[value_start(text, 4) :] == "'Paris'"


@pytest.mark.parametrize("text", ["city Paris", "city", "city, 'Paris'", "city-x"])
def test_value_start_finds_nothing_if_the_separator_or_the_value_is_missing(text: str) -> None:
    assert value_start(text, 4) == -1


def test_a_bare_value_ends_at_a_comma_or_at_the_end_of_the_line() -> None:
    assert bare_value("New York, NY", 0) == "New York"
    assert bare_value("New York\nParis", 0) == "New York"
    assert bare_value('"Paris"', 0) == ""


TOOLS = {tool.name: tool for tool in (WEATHER, CLOCK, SEARCH)}


def read(text: str) -> CallReader:
    reading = CallReader(text, TOOLS)
    assert reading.read_to_end()
    return reading


def test_a_call_is_read_with_its_keys_and_values() -> None:
    reading = read('commentary to=functions.get_weather json{"city": "Paris", days: 3}')
    assert reading.tool is WEATHER
    assert (reading.has_key, reading.is_marked, reading.is_unclosed) == (True, True, False)
    assert reading.contents == ["city", "Paris", "days", "3"]


@pytest.mark.parametrize(
    ("text", "values"),
    [
        (
            "get_weather<parameter=city>Paris: (a\n'city')</parameter>",
            ["city", "Paris: (a\n'city')"],
        ),
        ('get_weather<parameter type="text" name="city">Oslo</parameter>', ["city", "Oslo"]),
        ("get_weather<arg_key>city</arg_key><arg_value>Oslo</arg_value>", ["city", "Oslo"]),
        ('<call tool="get_weather" city="Oslo"/>', ["city", "Oslo"]),
        ("get_weather city='New\\'s'", ["city", "New\\'s"]),
        ("get_weather city: New York\nunit: c", ["city", "New York", "unit", "c"]),
        ('search{"options": {"a": {b: c}, "d": 1}}', ["options", "a", "b", "c", "d", "1"]),
        ("get_weather({true, 2.5, none} city=1)", ["city", "1"]),
    ],
)
def test_values_are_recognized_by_their_context(text: str, values: list[str]) -> None:
    assert read(text).contents == values


@pytest.mark.parametrize(
    "text", ["get_weather {city: 'Par", "get_weather <city>Par", "<too", '"too']
)
def test_a_text_is_unclosed_if_it_ends_within_a_value_or_a_mark(text: str) -> None:
    assert read(text).is_unclosed


@pytest.mark.parametrize(
    "text",
    [
        "get_weather says city=Paris",
        "get_weather city Paris",
        'get_weather {"town": "Paris"}',
        'get_weather {"city": "Paris"} "town": "Oslo"',
        "get_weather {city: {a: b}, town: c}",
        "get_weather {city: string}",
        'get_weather {city: "<city>"}',
        "get_weather <city>...</city>",
        "get_weather city=a b c d e f g h i;",
        "get_weather <town>Paris</town>",
        '<call tool="get_weather" town="Oslo"/>',
        '<call tool="get_weather"><param name="town">',
        "<user><name>get_weather",
        "<user>tool <user>get_weather",
        "```json\nget_weather",
        "tool ```",
        "input: get_weather",
        "city: get_weather",
        '"city": get_weather',
        '"Osl',
        "get_weather * city",
        "get_weather(city=1) get_time(city=1)",
        f"tool{' ' * 200}get_weather",
        f"get_weather{'[ a' * 700}",
        f"get_weather{'(city=1)' * 700}",
    ],
)
def test_a_text_with_a_word_that_is_not_part_of_a_call_is_prose(text: str) -> None:
    assert not CallReader(text, TOOLS).read_to_end()


def test_a_second_tool_name_begins_another_call_only_if_the_text_has_a_mark() -> None:
    reading = read("tool_call: get_weather(city=1)\ntool_call: search(query='a')")
    assert reading.tool is SEARCH
    assert read('<call>{"name": "get_weather", "city": 1}{"name": "search"}').tool is SEARCH
    assert read('get_weather {"city": "get_time"}').tool is WEATHER


@pytest.mark.parametrize(
    "text", ["tool_ca", "functions.get_wea", "<|x|>inp", "get_weather cit", "``"]
)
def test_a_text_that_ends_within_a_key_or_a_name_or_a_mark_may_become_a_call(text: str) -> None:
    reading = CallReader(text, TOOLS)
    assert not reading.read_to_end()
    assert reading.may_continue()


def test_a_text_that_ends_before_the_separator_of_a_key_may_become_a_call() -> None:
    for text in ("get_weather city ", "search {options: {a ", "```too"):
        reading = CallReader(text, TOOLS)
        assert not reading.read_to_end()
        assert reading.may_continue()


@pytest.mark.parametrize(
    "text",
    ["tools xy", "weather", "get_weather so", "get_weather ci, ", "*", f"tool{' ' * 200}", "```py"],
)
def test_prose_cannot_become_a_call(text: str) -> None:
    reading = CallReader(text, TOOLS)
    assert not reading.read_to_end()
    assert not reading.may_continue()


def test_the_keys_of_a_tool_are_its_declared_parameters() -> None:
    assert keys_of(WEATHER) == {"city", "days", "unit"}
    assert keys_of(make_tool("free", {"properties": ["city"]})) == frozenset()
