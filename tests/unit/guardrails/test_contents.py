import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.messages import Message, tool_result
from proxy.guardrails.contents import (
    convert_to_user,
    join_contents,
    join_messages,
    merge,
    plain_message,
    prepend_text,
    replace_content,
    replace_members,
    text_of,
    write_as_user,
)
from tests.fakes.arrivals import is_linear
from tests.fakes.histories import call, called, history, said, written

TEXT: JsonValue = {"type": "text", "text": "seen"}
IMAGE: JsonValue = {"type": "image_url", "image_url": {"url": "data:,"}}


@pytest.mark.parametrize(
    ("contents", "joined"),
    [
        ([], ""),
        (["a"], "a"),
        (["a", "b"], "a\n\nb"),
        (["", None, "a", []], "a"),
        (["a", [TEXT]], [{"type": "text", "text": "a"}, TEXT]),
        ([[IMAGE], None, "a"], [IMAGE, {"type": "text", "text": "a"}]),
        ([[TEXT], [IMAGE, TEXT]], [TEXT, IMAGE, TEXT]),
    ],
)
def test_contents_are_joined_with_blank_lines(contents: list[JsonValue], joined: JsonValue) -> None:
    assert json.parse(join_contents([json.dump(content) for content in contents])) == joined


def test_parts_of_joined_contents_keep_their_bytes() -> None:
    part = b'{"type" : "text","text":"\\u0041"}'
    assert join_contents([b"[" + part + b"]", b'"b"']).startswith(b"[" + part + b",")


@pytest.mark.parametrize(
    ("content", "text"),
    [("a", "a"), (None, ""), (7, ""), ([TEXT, IMAGE, TEXT], "seen\nseen"), ([7, {"text": 7}], "")],
)
def test_the_text_of_a_content_consists_of_its_joined_text_parts(
    content: JsonValue, text: str
) -> None:
    assert text_of(json.dump(content)) == text


def test_replace_members_drops_the_members_that_it_does_not_receive() -> None:
    (message,) = history(said("user", "a", name="Ann"))
    healed = replace_members(message, {"role": b'"user"', "content": b'"b"'})
    assert written([healed]) == [said("user", "b")]


def test_a_message_is_rewritten_as_a_user_message() -> None:
    messages = history(said("system", "a", name="x"), said("system", [IMAGE]))
    assert written([convert_to_user(message) for message in messages]) == [
        said("user", "a"),
        said("user", [IMAGE]),
    ]
    assert written([convert_to_user(messages[0], "Note:")]) == [said("user", "Note:\n\na")]


MERGED: list[tuple[list[JsonObject], JsonObject]] = [
    ([said("user", "a"), said("user", "b")], said("user", "a\n\nb")),
    ([said("user", "a", name="x"), said("user", "", name="y")], said("user", "a", name="x")),
    ([said("user", "a"), said("user", "b", name="y")], said("user", "a\n\nb", name="y")),
    (
        [
            said("assistant", "a", reasoning_content="x", thinking={"x": 1}, tool_calls=[]),
            called(call("c"), content=None, reasoning_content="y", thinking="y"),
        ],
        called(call("c"), content="a", reasoning_content="x\n\ny", thinking={"x": 1}),
    ),
]


@pytest.mark.parametrize(("messages", "merged"), MERGED)
def test_messages_of_the_same_role_are_merged(
    messages: list[JsonObject], merged: JsonObject
) -> None:
    assert written([merge(history(*messages))]) == [merged]


def test_merging_messages_takes_linear_time() -> None:
    assert is_linear(
        lambda text: merge(history(said("user", "a")) * len(text)), lambda size: "x" * size, 2_000
    )


def test_a_repaired_result_keeps_its_failure_flag() -> None:
    result = tool_result("c", "gone", failed=True)
    assert replace_members(result, {"role": b'"tool"', "content": b'"gone"'}).failed is True


PICTURE = '{"type":"image_url",  "image_url":{"url":"data:,"}}'
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
        (f"[{PICTURE}]", '"b"', f'[{PICTURE},{{"type":"text","text":"-"}},{B}]', "-\nb"),
        ('"a"', f"[{PICTURE}]", f'[{A},{{"type":"text","text":"-"}},{PICTURE}]', "a\n-"),
        (f"[{A}]", f"[{PICTURE}]", f'[{A},{{"type":"text","text":"-"}},{PICTURE}]', "a\n-"),
        (f"[{A}]", '""', f"[{A}]", "a"),
        ('""', f"[{B}]", f"[{B}]", "b"),
    ],
)
def test_contents_are_joined_with_a_separator(
    first: str | None, second: str | None, content: str, text: str
) -> None:
    message = join_messages([user(first), user(second)], "-")
    assert source(message).replace(", ", ",") == (
        f'{{"role":"user","content":{content}}}'.replace(", ", ",")
    )
    assert message.text == text


CONTENTS = st.sampled_from([None, "null", '""', '"a"', "[]", f"[{A}]", f"[{PICTURE},{B}]"])


@given(st.lists(CONTENTS, min_size=1, max_size=6))
def test_joining_all_contents_at_once_equals_joining_them_in_turn(
    contents: list[str | None],
) -> None:
    messages = [user(content) for content in contents]
    one_by_one = join_messages(messages[:1], "-")
    for message in messages[1:]:
        one_by_one = join_messages([one_by_one, message], "-")
    assert join_messages(messages, "-") == one_by_one


def test_image_parts_of_joined_messages_keep_their_bytes() -> None:
    assert PICTURE in source(join_messages([user(f"[{PICTURE}]"), user('"b"')], "-"))
    assert PICTURE in source(prepend_text(user(f"[{PICTURE}]"), "a", "-"))


def test_joining_drops_the_other_members_of_the_second_message() -> None:
    message = join_messages([user('"a"', ',"name":"x"'), user('"b"', ',"name":"y","more":1')], "-")
    assert source(message) == '{"role":"user","content":"a-b","name":"x"}'


def test_prepend_text_inserts_a_text_and_a_separator() -> None:
    message = prepend_text(user('"b"'), "a", "\n")
    assert message == Message("user", "a\nb", b'{"role":"user","content":"a\\nb"}')
    assert prepend_text(user(None), "a", "\n").text == "a"


def test_replace_content_removes_calls_and_keeps_other_members() -> None:
    message = Message("assistant", "", b'{"role":"assistant","tool_calls":[{}],"reasoning":"r"}')
    assert replace_content(message, "text") == Message(
        "assistant", "text", b'{"role":"assistant","reasoning":"r","content":"text"}'
    )


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        ('"x"', "text"),
        (f"[{A}]", "text"),
        (f"[{A},{PICTURE}]", [{"type": "text", "text": "text"}, json.parse(PICTURE)]),
    ],
)
def test_a_message_written_as_a_user_message_keeps_its_non_text_parts(
    content: str, parts: JsonValue
) -> None:
    message = write_as_user(user(content, ',"tool_call_id":"a"'), "text")
    assert json.parse(message.source) == {"role": "user", "content": parts}
    assert message.text == "text"


def test_a_plain_message_has_only_a_role_and_a_text() -> None:
    assert plain_message("system", "x") == Message(
        "system", "x", b'{"role":"system","content":"x"}'
    )
