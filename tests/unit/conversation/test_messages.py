import pytest

from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.conversation.messages import Message, assistant_message, tool_result, user_message
from proxy.conversation.parts import Attachment, Image, Part, Reasoning, Text
from proxy.conversation.tools import ToolCall

CALL = ToolCall("c", "f", '{"a": ')


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (user_message("Hi"), Message("user", "Hi", b'{"role":"user","content":"Hi"}')),
        (
            tool_result("c", "5"),
            Message(
                "tool", "5", b'{"role":"tool","tool_call_id":"c","content":"5"}', tool_call_id="c"
            ),
        ),
        (
            assistant_message("Hi"),
            Message("assistant", "Hi", b'{"role":"assistant","content":"Hi"}'),
        ),
        (
            assistant_message("", (CALL,), reasoning="Hm."),
            Message(
                "assistant",
                "",
                b'{"role":"assistant","content":"","reasoning_content":"Hm.","tool_calls":[{"id":'
                b'"c","type":"function","function":{"name":"f","arguments":"{\\"a\\": "}}]}',
                (CALL,),
            ),
        ),
    ],
)
def test_a_message_created_by_temper_has_its_json_as_source(
    message: Message, expected: Message
) -> None:
    assert message == expected


def test_the_attribute_failed_of_a_message_is_not_in_its_source() -> None:
    assert (tool_result("c", "5").failed, tool_result("c", "5", failed=True).failed) == (None, True)
    assert tool_result("c", "5", failed=True).source == tool_result("c", "5").source


SIGNED = b'{"type":"thinking","thinking":"A","signature":"s"}'


@pytest.mark.parametrize(
    ("members", "parts"),
    [
        ('"content":"\\u00fc"', [Text("ü", b'"\\u00fc"')]),
        ('"content":null', []),
        ("", []),
        ('"content": [ {"type":"text","text": "a"},{"type":"refusal","refusal":"b"},'
         '{"type":"refusal"} ]',
         [Text("a", b'"a"', "content.0"), Text("b", b'"b"', "content.1"),
          Text("", b'""', "content.2")]),
        ('"content":[{"type":"image_url","image_url":{"url":"data:,x"}},'
         '{"type":"image_url","image_url":"data:,y"},{"type":"image_url"}]',
         [Image("data:,x", "content.0"), Image("data:,y", "content.1"), Image("", "content.2")]),
        ('"content":[{"type":"input_audio"},{"type":"file"},{"type":"new"},{}]',
         [Attachment("input_audio", "content.0"), Attachment("file", "content.1"),
          Attachment("new", "content.2"), Attachment("None", "content.3")]),
        ('"content":"b","reasoning":"a"', [Reasoning("a"), Text("b", b'"b"')]),
        ('"reasoning_content":null,"thinking":{"a":1}', []),
        ('"content":[{"type":"reasoning","reasoning":"a"},{"type":"redacted_thinking","data":"x"}]',
         [Reasoning("a"), Reasoning("")]),
        ('"thinking_blocks":[{"type":"thinking","thinking":"A","signature":"s","x":1},'
         '{"type":"redacted_thinking","data":"d"}]',
         [Reasoning("A", "s", SIGNED),
          Reasoning("", "d", b'{"type":"redacted_thinking","data":"d"}')]),
        ('"thinking_blocks":[{"type":"thinking","signature":"s"},{"type":"text"},1,'
         '{"type":"thinking","thinking":"A","signature":5},{"type":"redacted_thinking","data":""}]',
         []),
    ],
)  # fmt: skip
def test_the_parts_of_a_message_are_read_from_its_source(members: str, parts: list[Part]) -> None:
    source = b"{%b}" % members.encode()
    assert Message("user", "", source).parts == tuple(parts)


@pytest.mark.parametrize(("source", "name"), [({"name": "f"}, "f"), ({}, ""), ({"name": 1}, "")])
def test_the_name_of_a_message_is_read_from_its_source(source: JsonObject, name: str) -> None:
    assert Message("tool", "", json.dump(source)).name == name
