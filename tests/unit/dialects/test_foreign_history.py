import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.conversation import json
from proxy.conversation.messages import Message
from proxy.conversation.tools import ToolCall
from proxy.dialects.foreign_history import (
    ForeignHistory,
    HistoryCall,
    assistant_entry,
    is_replayed,
    result_entry,
    sign,
    user_entry,
    write_content,
    write_picture,
    write_tool,
)
from proxy.dialects.raw_json import JsonText, own_text

PICTURE = write_picture(b'"data:image/png;base64,AA=="')
NOTE = [own_text("Mind the gap.")]


def sources(history: ForeignHistory) -> list[bytes]:
    return [message.source for message in history.messages()]


def test_content_that_is_only_text_is_written_as_one_string() -> None:
    texts = [JsonText("ü", b'"\\u00fc"'), own_text("b")]
    assert write_content(texts) == ("ü\nb", b'"\\u00fc\\nb"')
    assert write_content([]) == ("", b'""')


def test_content_with_an_image_is_written_as_a_list_with_adjacent_texts_merged() -> None:
    text, content = write_content([*NOTE, *NOTE, PICTURE, PICTURE, *NOTE])
    assert text == "\n".join(["Mind the gap."] * 3)
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    assert json.parse(content) == [
        {"type": "text", "text": "Mind the gap.\nMind the gap."},
        picture,
        picture,
        {"type": "text", "text": "Mind the gap."},
    ]


def test_a_history_keeps_the_text_of_every_role() -> None:
    history = ForeignHistory()
    history.add_system(NOTE)
    history.add_system([own_text("And you.")], "developer")
    history.extend([user_entry([own_text("Hi"), own_text("")])])
    call = HistoryCall(own_text("c"), own_text("f"), JsonText('{"a":1.0}', b'"{\\"a\\":1.0}"'))
    anonymous = HistoryCall(None, own_text("g"), own_text("{}"))
    history.extend([assistant_entry([], [own_text("Hm."), own_text("So.")], [call, anonymous])])
    history.extend([result_entry(own_text("c"), [own_text("gone")])])
    history.extend([result_entry(None, [])])
    assert history.messages() == (
        Message("system", "Mind the gap.", b'{"role":"system","content":"Mind the gap."}'),
        Message("developer", "And you.", b'{"role":"developer","content":"And you."}'),
        Message("user", "Hi", b'{"role":"user","content":"Hi"}'),
        Message(
            "assistant",
            "",
            b'{"role":"assistant","content":"","reasoning_content":"Hm.\\nSo.","tool_calls":['
            b'{"id":"c","type":"function","function":{"name":"f","arguments":"{\\"a\\":1.0}"}},'
            b'{"type":"function","function":{"name":"g","arguments":"{}"}}]}',
            (ToolCall("c", "f", '{"a":1.0}'), ToolCall("", "g", "{}")),
        ),
        Message("tool", "gone", b'{"role":"tool","tool_call_id":"c","content":"gone"}', (), "c"),
        Message("tool", "", b'{"role":"tool","content":""}'),
    )


def test_all_initial_system_messages_are_merged_if_joins_system_is_set() -> None:
    history = ForeignHistory(joins_system=True)
    history.add_system([own_text("")])
    history.add_system(NOTE)
    history.add_system([own_text("Be kind.")])
    assert sources(history) == [b'{"role":"system","content":"Mind the gap.\\nBe kind."}']


def test_a_later_system_message_is_appended_to_the_previous_message() -> None:
    history = ForeignHistory(joins_system=True)
    history.extend([user_entry([own_text("Hi"), PICTURE])])
    history.add_system(NOTE)
    history.extend([result_entry(None, [own_text("gone")])])
    history.add_system([own_text("a"), own_text("b")])
    history.add_system([own_text("")])
    history.add_system(NOTE)
    reminder = "<system-reminder>\nMind the gap.\n</system-reminder>"
    user, result = history.messages()
    assert user.text == f"Hi\n{reminder}"
    other = "<system-reminder>\na\nb\n</system-reminder>"
    assert result.text == f"gone\n{other}\n{reminder}"
    assert json.parse(result.source) == {"role": "tool", "content": result.text}


def test_a_reminder_does_not_change_a_history_that_shares_its_entries() -> None:
    first, other = ForeignHistory(), ForeignHistory()
    first.extend([user_entry([own_text("Hi")])])
    before = first.messages()
    other.extend(first.entries)
    other.add_system(NOTE)
    assert first.messages() == before
    assert other.messages()[0].text == "Hi\n<system-reminder>\nMind the gap.\n</system-reminder>"


def test_system_text_after_an_assistant_message_becomes_a_user_message() -> None:
    history = ForeignHistory()
    history.extend([assistant_entry([own_text("Hi")])])
    history.add_system(NOTE)
    assert history.messages()[1].role == "user"
    assert history.messages()[1].text == "<system-reminder>\nMind the gap.\n</system-reminder>"


@pytest.mark.parametrize(
    ("result", "text"),
    [
        ([own_text("gone")], "Error: gone"),
        ([own_text("Error: gone")], "Error: gone"),
        ([own_text('{"error": "gone"}')], '{"error": "gone"}'),
        ([], "Error: "),
        ([PICTURE], "Error: "),
        ([PICTURE, own_text("gone")], "Error: gone"),
    ],
)
def test_a_failed_result_begins_with_error_unless_it_reports_the_failure(
    result: list[JsonText], text: str
) -> None:
    history = ForeignHistory()
    history.extend([result_entry(None, result, is_error=True)])
    history.extend([result_entry(None, result)])
    failed, other = history.messages()
    assert (failed.text, failed.failed, other.failed) == (text, True, None)


def test_write_tool_omits_missing_members() -> None:
    assert write_tool(own_text("f")) == b'{"type":"function","function":{"name":"f"}}'
    whole = write_tool(
        own_text("f"),
        description=own_text("d"),
        parameters=b'{"type": "object"}',
        strict=b"true",
    )
    assert whole == (
        b'{"type":"function","function":{"name":"f","description":"d",'
        b'"parameters":{"type": "object"},"strict":true}}'
    )


@given(st.lists(st.text()))
def test_reasoning_with_its_signature_is_replayed(pieces: list[str]) -> None:
    thought = "".join(pieces)
    assert is_replayed(thought, sign(thought))


def test_reasoning_without_a_signature_is_replayed() -> None:
    assert is_replayed("Hm.", "")


@pytest.mark.parametrize("signature", ["EqQBCgIYAhIM", "temper1:", sign("Another.")])
def test_reasoning_with_another_signature_is_not_replayed(signature: str) -> None:
    assert sign("Hm.").startswith("temper1:")
    assert not is_replayed("Hm.", signature)
