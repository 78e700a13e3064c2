import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.conversation import json
from proxy.conversation.json import JsonValue
from proxy.conversation.messages import Message
from proxy.guardrails.tool_prompts.contents import (
    introduced,
    joined,
    plain_message,
    retold,
    rewritten,
)

IMAGE = '{"type":"image_url",  "image_url":{"url":"data:,"}}'
A = '{"type":"text","text":"a"}'
B = '{"type":"text", "text":"b"}'


def user(content: str | None, more: str = "") -> Message:
    member = "" if content is None else f',"content":{content}'
    return Message("user", "", f'{{"role":"user"{member}{more}}}'.encode())


def source(message: Message) -> str:
    return message.source.decode()


@pytest.mark.parametrize(
    ("first", "second", "content", "text"),
    [
        ('"a"', '"b"', '"a-b"', "a-b"),
        ('"a"', "null", '"a"', "a"),
        (None, '"b"', '"b"', "b"),
        ("null", None, '""', ""),
        (f"[{IMAGE}]", '"b"', f'[{IMAGE},{{"type":"text","text":"-"}},{B}]', "-\nb"),
        ('"a"', f"[{IMAGE}]", f'[{A},{{"type":"text","text":"-"}},{IMAGE}]', "a\n-"),
        (f"[{A}]", f"[{IMAGE}]", f'[{A},{{"type":"text","text":"-"}},{IMAGE}]', "a\n-"),
        (f"[{A}]", '""', f"[{A}]", "a"),
        ('""', f"[{B}]", f"[{B}]", "b"),
    ],
)
def test_contents_are_put_together_with_a_separator(
    first: str | None, second: str | None, content: str, text: str
) -> None:
    message = joined([user(first), user(second)], "-")
    assert source(message).replace(", ", ",") == (
        f'{{"role":"user","content":{content}}}'.replace(", ", ",")
    )
    assert message.text == text


CONTENTS = st.sampled_from([None, "null", '""', '"a"', "[]", f"[{A}]", f"[{IMAGE},{B}]"])


@given(st.lists(CONTENTS, min_size=1, max_size=6))
def test_many_contents_are_put_together_as_two_and_two(contents: list[str | None]) -> None:
    messages = [user(content) for content in contents]
    one_by_one = joined(messages[:1], "-")
    for message in messages[1:]:
        one_by_one = joined([one_by_one, message], "-")
    assert joined(messages, "-") == one_by_one


def test_parts_keep_their_bytes() -> None:
    assert IMAGE in source(joined([user(f"[{IMAGE}]"), user('"b"')], "-"))
    assert IMAGE in source(introduced(user(f"[{IMAGE}]"), "a", "-"))


def test_only_the_content_of_the_second_is_taken() -> None:
    message = joined([user('"a"', ',"name":"x"'), user('"b"', ',"name":"y","more":1')], "-")
    assert source(message) == '{"role":"user","content":"a-b","name":"x"}'


def test_a_text_is_put_in_front() -> None:
    message = introduced(user('"b"'), "a", "\n")
    assert message == Message("user", "a\nb", b'{"role":"user","content":"a\\nb"}')
    assert introduced(user(None), "a", "\n").text == "a"


def test_calls_become_text_and_other_members_stay() -> None:
    message = Message("assistant", "", b'{"role":"assistant","tool_calls":[{}],"reasoning":"r"}')
    assert rewritten(message, "text") == Message(
        "assistant", "text", b'{"role":"assistant","reasoning":"r","content":"text"}'
    )


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ('"x"', "text"),
        (f"[{A}]", "text"),
        (f"[{A},{IMAGE}]", [{"type": "text", "text": "text"}, json.parse(IMAGE)]),
    ],
)
def test_a_message_of_another_role_keeps_what_is_no_text(content: str, told: JsonValue) -> None:
    message = retold(user(content, ',"tool_call_id":"a"'), "user", "text")
    assert json.parse(message.source) == {"role": "user", "content": told}
    assert message.text == "text"


def test_a_plain_message_says_a_text() -> None:
    assert plain_message("system", "x") == Message(
        "system", "x", b'{"role":"system","content":"x"}'
    )
