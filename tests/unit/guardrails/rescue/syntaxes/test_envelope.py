import pytest

from proxy.conversation.tools import WrittenCall
from proxy.guardrails.rescue.syntax import Calls, Reading
from proxy.guardrails.rescue.syntaxes.envelope import read_all_calls, read_calls
from proxy.guardrails.rescue.values.cursor import Cursor
from tests.fakes.arrivals import chunkings, read

CALL = WrittenCall("add", {"a": 1})


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


def test_read_calls_announces_no_arguments_if_is_silent_is_set() -> None:
    cursor = Cursor('{"name": "add", "arguments": {"a": 1}}', is_finished=True)
    cursor.begin()
    with pytest.raises(StopIteration):
        next(read_calls(cursor, is_marked=False, is_silent=True))
    assert cursor.arguments_name is None


def test_calls_end_at_an_end_mark_that_starts_with_a_bracket() -> None:
    def start(cursor: Cursor) -> Reading:
        return read_all_calls(cursor, is_marked=True, ends=("[/CALL]",))

    text = '{"name": "add", "arguments": {"a": 1}}[/CALL]'
    assert read(start, text) == (Calls((CALL,)), "[/CALL]")
