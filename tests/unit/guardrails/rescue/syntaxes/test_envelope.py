import pytest

from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.tools import WrittenCall
from proxy.guardrails.rescue.syntax import Calls, NoCall, Reading, Reason
from proxy.guardrails.rescue.syntaxes.envelope import calls_in, read_all_calls, read_calls
from proxy.guardrails.rescue.values.cursor import Cursor
from tests.fakes.arrivals import attempt, chunkings, read

CALL = WrittenCall("add", {"a": 1})
ENVELOPES: list[JsonValue] = [
    {"name": "add", "arguments": {"a": 1}},
    {"name": " add ", "parameters": {"a": 1}, "id": "x", "type": "function", "index": 0},
    {"arguments": {"a": 1}, "name": "add"},
    {"tool": "add", "args": {"a": 1}},
    {"function": "add", "input": {"a": 1}},
    {"tool_name": "add", "tool_call_id": "0", "parameters": {"a": 1}},
    {"name": "add", "arguments": {"name": "add", "arguments": {"a": 1}}},
    {"function": {"name": "add", "kwargs": {"a": 1}}},
    {"type": "function", "function": {"name": "add", "arguments": {"a": 1}}},
    {"function": {"name": "add"}, "arguments": {"a": 1}},
    {"tool_calls": [{"type": "function", "function": {"name": "add", "arguments": {"a": 1}}}]},
    [{"name": "add", "arguments": {"a": 1}}],
    {"tool_call": {"name": "add", "arguments": {"a": 1}}},
    {"function_call": {"name": "add", "arguments": {"a": 1}}},
    {"action": "add", "action_input": {"a": 1}},
    {"function_name": "add", "params": {"a": 1}},
]


@pytest.mark.parametrize("envelope", ENVELOPES)
@pytest.mark.parametrize("is_marked", [True, False])
def test_every_envelope_is_a_call(envelope: JsonValue, is_marked: bool) -> None:
    assert calls_in(envelope, is_marked=is_marked) == (CALL,)


@pytest.mark.parametrize("is_marked", [True, False])
@pytest.mark.parametrize(
    "text",
    [
        '{"name": "add", "name": "now", "arguments": {}}',
        '{"name": "add", "arguments": {"a": 1}, "name": "now"}',
        '{"name": "add", "arguments": {"a": 1}, "arguments": {"a": 2}}',
        '{"name": "add", "arguments": {"a": 1, "a": 2}}',
        '{"name": "add", "arguments": {"a": 1}, "parameters": {"a": 2}}',
        '{"tool": "add", "arguments": {"a": 1}, "input": {"a": 2}}',
        '{"name": "add", "function": {"name": "now", "arguments": {"a": 1}}}',
        '{"name": "add", "arguments": {}, "function": {"name": "add", "arguments": {"a": 1}}}',
        '[{"name": "now", "arguments": {}}, {"name": "add", "name": "now", "arguments": {}}]',
        '[{"name": "now", "arguments": {}}, {"name": "add", "args": {}, "input": {"a": 1}}]',
    ],
)
def test_a_call_with_two_readings_is_broken(text: str, is_marked: bool) -> None:
    calls, _ = attempt(lambda c: read_calls(c, is_marked=is_marked), text)
    assert calls == NoCall(Reason.BROKEN)


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "add", "name": "add", "arguments": {"a": 1}}',
        '{"name": "add", "arguments": {"a": 1}, "arguments": {"a": 1}}',
        '{"name": "add", "tool": "function", "arguments": {"a": 1}}',
        '{"name": "add", "function": {"name": "add", "arguments": {"a": 1}}}',
    ],
)
def test_a_repeated_value_has_one_reading(text: str) -> None:
    calls, _ = attempt(lambda c: read_calls(c, is_marked=True), text)
    assert calls == Calls((CALL,))


@pytest.mark.parametrize("is_marked", [True, False])
def test_a_list_is_as_many_calls(is_marked: bool) -> None:
    two: JsonValue = [{"name": "add", "arguments": {"a": 1}}, {"name": "now", "arguments": None}]
    assert calls_in(two, is_marked=is_marked) == (CALL, WrittenCall("now", {}))


def test_a_json_string_of_arguments_stays_a_string() -> None:
    item: JsonValue = {"name": "add", "arguments": ' {"a": 1}'}
    assert calls_in(item, is_marked=True) == (WrittenCall("add", ' {"a": 1}'),)
    assert calls_in(item, is_marked=False) == (WrittenCall("add", ' {"a": 1}'),)


def test_a_bare_name_is_a_call_only_after_a_mark() -> None:
    assert calls_in({"name": "add"}, is_marked=True) == (WrittenCall("add", {}),)
    assert calls_in({"name": "add"}, is_marked=False) == ()


def test_extra_members_are_ignored_only_after_a_mark() -> None:
    item: JsonValue = {"name": "add", "arguments": {"a": 1}, "thought": "sum"}
    assert calls_in(item, is_marked=True) == (CALL,)
    assert calls_in(item, is_marked=False) == ()


def test_non_object_arguments_are_left_to_validation_after_a_mark() -> None:
    item: JsonValue = {"name": "add", "arguments": [1]}
    assert calls_in(item, is_marked=True) == (WrittenCall("add", [1]),)
    assert calls_in(item, is_marked=False) == ()
    assert calls_in({"name": "add", "arguments": "one"}, is_marked=False) == ()


@pytest.mark.parametrize(
    "value",
    [
        {},
        [],
        "add",
        None,
        {"name": ""},
        {"name": 5, "arguments": {}},
        {"arguments": {"a": 1}},
        {"function": {"arguments": {}}},
        {"name": "add", "a": 1},
        {"name": "add", "arguments": {}, "input": {}},
        {"tool_calls": []},
        {"tool_calls": ["add"]},
        {"tool_calls": "add"},
        [{"name": "add", "arguments": {}}, {"answer": 42}],
        [[{"name": "add", "arguments": {}}]],
    ],
)
@pytest.mark.parametrize("is_marked", [True, False])
def test_other_json_is_no_call(value: JsonValue, is_marked: bool) -> None:
    assert calls_in(value, is_marked=is_marked) == ()


def test_reading_stops_after_the_call() -> None:
    text = '{"name": "add", "arguments": {"a": 1}} {'
    assert attempt(lambda c: read_calls(c, is_marked=True), text) == (Calls((CALL,)), " {")


def test_non_call_json_is_distinguished_from_other_text() -> None:
    cases = {'{"a": 1}': Reason.NOT_A_CALL, '{"name": "a" b': Reason.BROKEN}
    for text, reason in cases.items():
        assert attempt(lambda c: read_calls(c, is_marked=True), text)[0] == NoCall(reason)


def test_an_unmarked_object_is_abandoned_at_the_first_foreign_member() -> None:
    text = '{"name": "add", "answer": "a long story'
    result = attempt(lambda c: read_calls(c, is_marked=False), text)
    assert result == (NoCall(Reason.NOT_A_CALL), '"a long story')


def test_calls_follow_one_another_with_or_without_separators() -> None:
    call = '{"name": "add", "arguments": {"a": 1}}'
    text = f" {call}{call}, {call};\n[{call},{call}] </x>"
    result = attempt(lambda c: read_all_calls(c, is_marked=False), text)
    assert result == (Calls((CALL,) * 5), "</x>")


def test_one_broken_call_invalidates_all() -> None:
    text = '{"name": "add", "arguments": {"a": 1}} {"name": oh no}'
    result, _ = attempt(lambda c: read_all_calls(c, is_marked=True), text)
    assert result == NoCall(Reason.BROKEN)


@pytest.mark.parametrize("text", ["", "  ", "text", "<"])
def test_text_that_is_no_json_is_no_call(text: str) -> None:
    result, rest = attempt(lambda c: read_all_calls(c, is_marked=True), text)
    assert (result, rest) == (NoCall(Reason.NOT_A_CALL), text.strip())


def test_missing_closing_brackets_leave_the_call_open() -> None:
    text = '{"name": "add", "arguments": {"a": 1}'
    result, _ = attempt(lambda c: read_all_calls(c, is_marked=True), text)
    assert result == Calls((CALL,), closed=False)


@pytest.mark.parametrize(
    ("text", "name", "echo"),
    [
        ('{"name": "f", "arguments": {"a": {"args": 1}}, "id": 1}', "f", '{"a": {"args": 1}}'),
        ('[{"name": "f", "arguments": {} }, {"name": "g", "args": {"b": 2}}]', "f", "{}"),
        ('{"function": {"name": "f", "parameters": {"a": 1}}}', "f", '{"a": 1}'),
        ('{"function": {"name": "f"}, "parameters": {"a": 1}}', "f", '{"a": 1}'),
        ('{"tool_calls": [{"function": {"name": "f", "args":{"a": 1}}}]}', "f", '{"a": 1}'),
        ('{"arguments": {"name": "x", "args": {}}, "name": "f"}', None, ""),
        ('{"name": "f", "arguments": "{}"}', None, ""),
        ('{"name": "f", "arguments": null}', None, ""),
    ],
)
def test_the_arguments_of_the_first_call_are_streamed_if_its_name_is_known(
    text: str, name: str | None, echo: str
) -> None:
    for pieces in chunkings(text):
        cursor = Cursor()
        cursor.begin()
        reading = read_all_calls(cursor, is_marked=True)
        next(reading)
        echoed = ""
        for piece in pieces:
            cursor.feed(piece)
            next(reading, None)
            echoed += cursor.take_echo()
        assert (cursor.arguments_name, echoed) == (name, echo)


def test_a_function_with_parameters_and_no_more_describes_a_tool() -> None:
    item: JsonValue = {"function": "add", "parameters": {}}
    assert calls_in(item, is_marked=False) == ()
    assert calls_in(item, is_marked=True) == (WrittenCall("add", {}),)


def test_arguments_that_only_resemble_a_call_stay() -> None:
    others: list[JsonValue] = [{"name": "add", "arguments": 1}, {"name": "x", "arguments": {}}]
    for arguments in others:
        item: JsonValue = {"name": "add", "arguments": arguments}
        assert calls_in(item, is_marked=True) == (WrittenCall("add", arguments),)


@pytest.mark.parametrize(
    "end", [', {"name": "now"', ', {"name": "now", "arguments": {"b": "c', ","]
)
def test_complete_items_of_a_truncated_list_are_calls(end: str) -> None:
    text = f'[{{"name": "add", "arguments": {{"a": 1}}}}{end}'
    result, _ = attempt(lambda c: read_all_calls(c, is_marked=False), text)
    assert result == Calls((CALL,), closed=False)


@pytest.mark.parametrize("text", ["[see", "[ 1]", "[]", '["x"]', "["])
def test_other_lists_are_abandoned_at_their_first_bracket(text: str) -> None:
    result, rest = attempt(lambda c: read_calls(c, is_marked=True), text)
    assert result == NoCall(Reason.NOT_A_CALL)
    assert rest == ("" if text == "[]" else text)


def test_one_surplus_closing_bracket_is_accepted() -> None:
    text = '{"name": "add", "arguments": {"a": 1}}}] </x>'
    result = attempt(lambda c: read_all_calls(c, is_marked=True), text)
    assert result == (Calls((CALL,)), "</x>")


def test_a_silent_reading_echoes_nothing() -> None:
    cursor = Cursor('{"name": "add", "arguments": {"a": 1}}', is_finished=True)
    cursor.begin()
    with pytest.raises(StopIteration):
        next(read_calls(cursor, is_marked=False, is_silent=True))
    assert cursor.arguments_name is None


def test_the_name_may_be_the_only_key_after_a_mark() -> None:
    item: JsonValue = {"add": {"a": 1}}
    assert calls_in(item, is_marked=True) == (CALL,)
    assert calls_in(item, is_marked=False) == ()
    others: list[JsonValue] = [{"add": 1}, {"add": {}, "now": {}}, {}, {"type": {"a": 1}}]
    for other in others:
        assert calls_in(other, is_marked=True) == ()


def test_a_wrapper_with_other_members_is_no_call() -> None:
    inner: JsonValue = {"name": "add", "arguments": {"a": 1}}
    assert calls_in({"tool_call": inner, "id": 1}, is_marked=True) == ()
    assert calls_in({"tool_call": "add"}, is_marked=True) == ()


def test_a_mark_that_starts_with_a_bracket_ends_the_calls() -> None:
    def start(cursor: Cursor) -> Reading:
        return read_all_calls(cursor, is_marked=True, ends=("[/CALL]",))

    text = '{"name": "add", "arguments": {"a": 1}}[/CALL]'
    assert read(start, text) == (Calls((CALL,)), "[/CALL]")


def test_a_tool_definition_is_no_call() -> None:
    schema: JsonValue = {"type": "object", "properties": {}}
    assert calls_in({"name": "add", "parameters": schema}, is_marked=False) == ()
    assert calls_in({"name": "add", "arguments": schema}, is_marked=False) != ()


def test_an_object_as_the_name_may_contain_only_a_name() -> None:
    inner: JsonObject = {"name": "g", "arguments": {"a": 1}}
    assert calls_in({"name": inner}, is_marked=True) == ()
    assert calls_in({"tool": {"name": "g"}, "args": {}}, is_marked=True) == (WrittenCall("g", {}),)
    assert calls_in({"function": inner}, is_marked=True) == (WrittenCall("g", {"a": 1}),)
