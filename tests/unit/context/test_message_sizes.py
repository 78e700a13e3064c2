from proxy.context.message_sizes import MessageSizes, key_of_tools
from proxy.context.rough_size import rough_size_of_tools, weight
from proxy.conversation.messages import Message
from proxy.conversation.tools import Tool
from tests.fakes.histories import history, said

LOOK = Tool("look", True, b'{"type":"function"}')
FIND = Tool("find", True, b'{"type":"function","function":{"name":"find"}}')


def messages(count: int) -> tuple[Message, ...]:
    return history(*(said("user", f"number {place} of many") for place in range(count)))


def test_it_weighs_as_weights_are() -> None:
    scales = MessageSizes()
    for message in messages(5):
        assert scales.weigh(message) == weight(message)
        assert scales.weigh(message) is scales.weigh(message)
    assert scales.weigh_tools((LOOK, FIND)) == rough_size_of_tools((LOOK, FIND))
    assert scales.weigh_tools((LOOK,)) == rough_size_of_tools((LOOK,))


def test_it_remembers_the_latest_messages_and_no_more() -> None:
    scales = MessageSizes(capacity=2)
    first, second, third = messages(3)
    scales.weigh(first)
    remembered = scales.weigh(second)
    again = scales.weigh(first)
    scales.weigh(third)
    assert scales.weigh(first) is again
    assert scales.weigh(second) is not remembered
    assert scales.weigh(second) == remembered


def test_long_messages_are_weighed_in_slices_and_only_once() -> None:
    scales = MessageSizes()
    short, long = history(said("user", "one line"), said("user", "a line of many\n" * 9_000))
    assert len(list(scales.weighing((short, long)))) > 5
    assert scales.weigh(long) == weight(long)
    assert list(scales.weighing((short, long))) == []


def test_tools_are_told_apart_by_what_they_say_and_their_order() -> None:
    assert key_of_tools((LOOK, FIND)) == key_of_tools((LOOK, FIND))
    assert len({key_of_tools(tools) for tools in ((), (LOOK,), (LOOK, FIND), (FIND, LOOK))}) == 4
