import pytest

from proxy.context.rough_size import (
    MEDIUM,
    countable,
    rough_size_of_tools,
    weight,
)
from proxy.conversation.json import JsonObject
from proxy.conversation.tools import Tool
from tests.fakes.histories import call, called, history, said

TOOL = Tool("look", True, b'{"type":"function"}')


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (said("user", "Hi"), "Hi"),
        (called(call("a", "look", '{"a":1}')), '{"name": "look", "arguments": {"a":1}}'),
        (
            called(call("a"), call("b"), content="So"),
            'So\n{"name": "look", "arguments": {}}\n{"name": "look", "arguments": {}}',
        ),
        (said("assistant", "So", reasoning_content="Hm"), "Hm\nSo"),
        (said("assistant", "So", thinking=None), "So"),
        (said("user", 'what is "reasoning"?'), 'what is "reasoning"?'),
    ],
)
def test_everything_that_was_said_is_counted(message: JsonObject, text: str) -> None:
    assert countable(history(message)[0]) == text


@pytest.mark.parametrize(
    ("message", "size"),
    [
        (said("user", "Hi"), (1, 0)),
        (said("user", "日本"), (2, 0)),
        (called(call("a", "look", '{"a":1}')), (8, 0)),
        (said("assistant", "So", reasoning_content="Hmm, no"), (1, 3)),
    ],
)
def test_messages_are_weighed_in_pieces(message: JsonObject, size: tuple[int, int]) -> None:
    assert weight(history(message)[0]) == (*size, 0)
    assert weight(history(message)[0]).pieces == sum(size)


def test_pictures_have_a_price() -> None:
    picture: JsonObject = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aa"}}
    (message,) = history(said("user", [{"type": "text", "text": "Look"}, picture]))
    assert weight(message).media == MEDIUM
    assert weight(history(said("user", "Hi"))[0]).media == 0


def test_tools_are_weighed_as_they_are_written() -> None:
    assert rough_size_of_tools((TOOL, TOOL)) == 20
