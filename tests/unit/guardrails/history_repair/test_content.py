import pytest

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.messages import tool_result
from proxy.guardrails.history_repair.content import (
    as_user,
    join_contents,
    merge,
    rewritten,
    text_of,
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
def test_contents_are_joined(contents: list[JsonValue], joined: JsonValue) -> None:
    assert json.parse(join_contents([json.dump(content) for content in contents])) == joined


def test_parts_keep_their_bytes() -> None:
    part = b'{"type" : "text","text":"\\u0041"}'
    assert join_contents([b"[" + part + b"]", b'"b"']).startswith(b"[" + part + b",")


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("a", "a"),
        (None, ""),
        (7, ""),
        ([TEXT, IMAGE, TEXT], "seen\nseen"),
        ([7, {"text": 7}], ""),
    ],
)
def test_the_text_of_a_content_is_that_of_its_parts(content: JsonValue, text: str) -> None:
    assert text_of(json.dump(content)) == text


def test_a_message_is_rewritten_with_its_text() -> None:
    (given,) = history(said("user", "a", name="Ann"))
    healed = rewritten(given, {"role": b'"user"', "content": b'"b"'})
    assert written([healed]) == [said("user", "b")]


def test_the_user_says_what_another_said() -> None:
    given = history(said("system", "a", name="x"), said("system", [IMAGE]))
    assert written([as_user(one) for one in given]) == [said("user", "a"), said("user", [IMAGE])]
    assert written([as_user(given[0], "Note:")]) == [said("user", "Note:\n\na")]


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


@pytest.mark.parametrize(("messages", "whole"), MERGED)
def test_messages_of_one_role_are_merged(messages: list[JsonObject], whole: JsonObject) -> None:
    assert written([merge(history(*messages))]) == [whole]


def test_merging_is_linear() -> None:
    assert is_linear(
        lambda text: merge(history(said("user", "a")) * len(text)), lambda size: "x" * size, 2_000
    )


def test_a_mended_result_still_knows_whether_the_tool_failed() -> None:
    result = tool_result("c", "gone", failed=True)
    assert rewritten(result, {"role": b'"tool"', "content": b'"gone"'}).failed is True
