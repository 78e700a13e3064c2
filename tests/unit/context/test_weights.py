import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.context.pieces import count_pieces
from proxy.context.weights import (
    MEDIUM,
    countable,
    media,
    rough_upper_bound,
    weight,
    weight_of_tools,
)
from proxy.conversation.json import JsonObject
from proxy.conversation.tools import Tool
from tests.fakes.histories import call, called, history, result, said

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
        (said("user", "Hi"), 2),
        (said("user", "日本"), 6),
        (called(call("a", "look", '{"a":1}')), 11),
        (said("assistant", "So", reasoning_content="Hmm"), 5),
    ],
)
def test_messages_are_weighed_in_bytes(message: JsonObject, size: int) -> None:
    assert weight(history(message)[0]) == size


def test_pictures_have_a_price() -> None:
    picture: JsonObject = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aa"}}
    (message,) = history(said("user", [{"type": "text", "text": "Look"}, picture]))
    assert media(message) == MEDIUM
    assert media(history(said("user", "Hi"))[0]) == 0
    assert rough_upper_bound((message,), ()) > MEDIUM


def test_tools_are_weighed_as_they_are_written() -> None:
    assert weight_of_tools((TOOL, TOOL)) == 38


@given(st.lists(st.text(max_size=60), max_size=5))
def test_the_rough_bound_is_never_too_low(texts: list[str]) -> None:
    messages = history(*(result(str(number), text) for number, text in enumerate(texts)))
    counted = sum(count_pieces(countable(message)) + 10 for message in messages)
    assert counted <= rough_upper_bound(messages, ())
    assert rough_upper_bound(messages, (TOOL,)) == rough_upper_bound(messages, ()) + 19
