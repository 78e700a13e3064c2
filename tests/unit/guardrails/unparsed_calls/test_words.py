import pytest

from proxy.guardrails.unparsed_calls.words import (
    introduces_value,
    is_about_calls,
    is_first_marker,
    is_imperative,
    is_literal,
    is_marker,
    is_placeholder,
    may_become_marker,
    names_key,
)


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        # known words
        ("tool_call", True),
        ("ARGS", True),
        ("arg-key", True),
        ("json", True),
        ("tool_call_begin", True),
        # other words
        ("city", False),
        ("tooling", False),
        ("call_7", False),
        ("tool_city", False),
        ("", False),
        ("_", False),
        ("工具", False),
    ],
)
def test_only_combinations_of_known_words_are_markers(word: str, *, expected: bool) -> None:
    assert is_marker(word) is expected


def test_only_markers_that_may_begin_a_reply_are_first_markers() -> None:
    assert is_first_marker("commentary")
    assert is_first_marker("Tool-Call")
    assert not is_first_marker("input")
    assert not is_first_marker("city")


@pytest.mark.parametrize(
    ("text", "is_first", "expected"),
    [
        ("", True, True),
        ("comm", True, True),
        ("inp", True, False),
        ("inp", False, True),
        ("tool_inp", True, True),
        ("city_inp", False, False),
        ("I'm", False, False),
        ("我", False, False),
        ("7", False, False),
        ("_", False, False),
    ],
)
def test_only_a_prefix_of_a_marker_may_become_a_marker(
    text: str, is_first: bool, expected: bool
) -> None:
    assert may_become_marker(text, is_first=is_first) is expected


def test_is_about_calls_is_true_for_tool_name_and_only_as_a_tag_for_arg_key() -> None:
    assert is_about_calls("tool_name")
    assert not is_about_calls("arg_key")
    assert is_about_calls("arg_key", is_tag=True)
    assert not is_about_calls("name", is_tag=True)


def test_tags_of_keys_and_values_are_recognized() -> None:
    assert names_key("parameter")
    assert names_key("arg_key")
    assert not names_key("type")
    assert introduces_value("arg_value")
    assert not introduces_value("arg_key")


def test_numbers_and_the_constants_of_json_and_python_are_literals() -> None:
    assert all(map(is_literal, ("7", "2.5", "true", "None")))
    assert not any(map(is_literal, ("Paris", "truth")))


@pytest.mark.parametrize(
    "value",
    [
        *("<city>", "{city}", "[city name]", "$CITY", "%CITY%", "...", "Par…", "?", "xxx"),
        *("your_city", "Enter a city", "the_city", "string", "str = 'Paris'", "number | null"),
    ],
)
def test_values_to_be_filled_in_are_placeholders(value: str) -> None:
    assert is_placeholder(value)


@pytest.mark.parametrize(
    "value", ["Paris", "", "the weather", "list of rivers", "an oak", f"<{'p' * 40}>"]
)
def test_real_values_are_not_placeholders(value: str) -> None:
    assert not is_placeholder(value)


def test_is_imperative_is_true_for_text_that_begins_with_use_or_function() -> None:
    assert is_imperative("Use get_weather(city='Paris')")
    assert is_imperative("function get_weather() {}")
    assert not is_imperative("Calling get_weather")
    assert not is_imperative("Call: get_weather")
