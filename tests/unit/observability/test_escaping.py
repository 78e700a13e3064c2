from hypothesis import given
from hypothesis import strategies as st

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.observability.escaping import escaped, visible_json


def test_printable_text_of_any_script_is_left_alone() -> None:
    assert escaped("naïve 日本語 🙂") == "naïve 日本語 🙂"


def test_what_could_steer_a_terminal_or_begin_a_line_is_shown() -> None:
    assert escaped("a\nb\x1b[31m\u202e\\") == r"a\nb\x1b[31m\u202e\\"


def test_json_hides_nothing_and_stays_the_same_value() -> None:
    value: JsonObject = {"a\u202e": ["\x1b\x7f\x00\u2028\n\\u202e", "日本 🙂"], "n": 2**70}
    shown = visible_json(value)
    assert shown == (
        '{\n  "a\\u202e": [\n'
        '    "\\u001b\\u007f\\u0000\\u2028\\n\\\\u202e",\n'
        '    "日本 🙂"\n  ],\n'
        '  "n": 1180591620717411303424\n}'
    )
    assert json.parse(shown) == value
    assert visible_json("\U000e0041") == '"\\udb40\\udc41"'


@given(st.recursive(st.text() | st.integers() | st.booleans() | st.none(), st.lists))
def test_whatever_is_written_can_be_seen_and_read_back(value: JsonValue) -> None:
    shown = visible_json(value)
    assert all(line.isprintable() for line in shown.split("\n"))
    assert json.parse(shown) == value
