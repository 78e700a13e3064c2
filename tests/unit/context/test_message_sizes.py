import pytest

from proxy.context.message_sizes import MEDIUM, MessageSizes, countable, key_of_tools, weight
from proxy.conversation.json import JsonObject
from proxy.conversation.messages import Message
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
def test_the_countable_text_of_a_message_contains_every_part(
    message: JsonObject, text: str
) -> None:
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
def test_weight_counts_the_text_and_the_reasoning_of_a_message_separately(
    message: JsonObject, size: tuple[int, int]
) -> None:
    assert weight(history(message)[0]) == (*size, 0)
    assert weight(history(message)[0]).pieces == sum(size)


def test_an_image_counts_as_a_constant_number_of_tokens() -> None:
    picture: JsonObject = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aa"}}
    (message,) = history(said("user", [{"type": "text", "text": "Look"}, picture]))
    assert weight(message).media == MEDIUM
    assert weight(history(said("user", "Hi"))[0]).media == 0


def test_tools_have_the_size_of_their_json() -> None:
    assert MessageSizes().weigh_tools((TOOL, TOOL)) == 20


LOOK = Tool("look", True, b'{"type":"function"}')
FIND = Tool("find", True, b'{"type":"function","function":{"name":"find"}}')


def messages(count: int) -> tuple[Message, ...]:
    return history(*(said("user", f"number {index} of many") for index in range(count)))


def test_cached_sizes_equal_computed_sizes() -> None:
    scales = MessageSizes()
    for message in messages(5):
        assert scales.weigh(message) == weight(message)
        assert scales.weigh(message) is scales.weigh(message)
    both = scales.weigh_tools((LOOK, FIND))
    assert both == scales.weigh_tools((LOOK, FIND)) > scales.weigh_tools((LOOK,))


def test_only_the_sizes_of_the_most_recently_used_messages_are_cached() -> None:
    scales = MessageSizes(capacity=2)
    first, second, third = messages(3)
    scales.weigh(first)
    remembered = scales.weigh(second)
    again = scales.weigh(first)
    scales.weigh(third)
    assert scales.weigh(first) is again
    assert scales.weigh(second) is not remembered
    assert scales.weigh(second) == remembered


def test_long_messages_are_counted_only_once_and_in_slices() -> None:
    scales = MessageSizes()
    short, long = history(said("user", "one line"), said("user", "a line of many\n" * 9_000))
    assert len(list(scales.weigh_gradually((short, long)))) > 5
    assert scales.weigh(long) == weight(long)
    assert list(scales.weigh_gradually((short, long))) == []


def test_the_key_of_tools_depends_on_their_content_and_order() -> None:
    assert key_of_tools((LOOK, FIND)) == key_of_tools((LOOK, FIND))
    assert len({key_of_tools(tools) for tools in ((), (LOOK,), (LOOK, FIND), (FIND, LOOK))}) == 4
