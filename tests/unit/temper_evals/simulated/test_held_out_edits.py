import pytest

from proxy.conversation.json import JsonObject
from temper_evals.scenarios.scenario import PlannedCall
from temper_evals.simulated.held_out_edits import BREAKS, NAMES, TYPES

TEXT = r'{"path":"C:\\a","text":"say \"hi\""}'
CALL = PlannedCall("write_file", {"path": "C:\\a", "text": 'say "hi"'})
SCHEMA: JsonObject = {
    "properties": {"mode": {"type": "string"}, "limit": {"anyOf": [{"type": "null"}]}}
}


@pytest.mark.parametrize(
    ("edit", "broken"),
    [
        ("escapes_outside", r'{"path": \n"C:\\a","text":"say \"hi\""\n\n}'),
        ("bare_quotes", r'{"path":"C:\\a","text":"say "hi""}'),
        ("bare_backslashes", r'{"path":"C:\a","text":"say \"hi\""}'),
        ("control_token", TEXT + "<|call|>"),
        ("half_quoted_keys", r'{path":"C:\\a",text":"say \"hi\""}'),
        ("escaped_delimiters", r'{"path":\"C:\\a\","text":\"say \"hi\"\"}'),
        ("empty_first", "{}" + TEXT),
    ],
)
def test_each_edit_of_json_returns_the_expected_broken_text(edit: str, broken: str) -> None:
    assert BREAKS[edit](TEXT, CALL) == broken


@pytest.mark.parametrize(
    ("edit", "name", "wrong"),
    [
        ("channel", "write_file", "write_file<|channel|>commentary"),
        ("closing_tag", "write_file", "write_file</arg_value>"),
        ("modules", "write_file", "toolbox.file.write_file"),
        ("modules", "write", "toolbox.desk.write"),
        ("beheaded", "write_file", "file"),
        ("beheaded", "write", "write_it"),
    ],
)
def test_each_edit_of_a_name_returns_the_expected_wrong_name(
    edit: str, name: str, wrong: str
) -> None:
    assert NAMES[edit](name) == wrong


@pytest.mark.parametrize(
    ("edit", "arguments", "result"),
    [
        ("other_key", {"a": 1, "order_id": 2}, ({"a": 1, "orderId": 2}, "orderId")),
        ("other_key", {"path": "x"}, ({"file_path": "x"}, "file_path")),
        (
            "other_key",
            {"path": "x", "file_path": "y"},
            ({"path": "x", "filePath": "y"}, "filePath"),
        ),
        ("other_key", {"a": 1}, None),
        ("marked_key", {"a": 1}, ({"a</arg_key>": 1}, "a</arg_key>")),
        ("value_in_object", {"a": "x"}, ({"a": {"type": "string", "value": "x"}}, "a")),
        ("value_in_object", {"a": 1}, None),
        ("elements_as_text", {"a": [{"b": 1}]}, ({"a": ['{"b":1}']}, "a")),
        ("elements_as_text", {"a": ["b"]}, None),
        ("boolean_as_text", {"a": True}, ({"a": "True"}, "a")),
        ("boolean_as_text", {"a": 1}, None),
        ("null_for_optional", {"a": 1}, ({"a": 1, "mode": None}, "mode")),
        ("null_for_optional", {"mode": "x"}, None),
    ],
)
def test_each_edit_of_types_returns_the_expected_wrong_arguments_or_none(
    edit: str, arguments: JsonObject, result: tuple[JsonObject, str] | None
) -> None:
    assert TYPES[edit](arguments, SCHEMA) == result
