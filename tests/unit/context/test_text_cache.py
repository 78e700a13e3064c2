from proxy.context.text_cache import TextCache
from proxy.context.units import units_of
from proxy.conversation.messages import Message, user_message
from tests.unit.context.conversations import step


def test_what_was_written_once_is_not_written_again() -> None:
    written = TextCache(capacity=2)
    asked: list[str] = []

    def get(key: int, text: str) -> Message:
        def write() -> Message:
            asked.append(text)
            return user_message(text)

        return written.get(key, write)

    first = get(1, "one")
    assert get(1, "another") is first
    get(2, "two")
    get(1, "one")
    get(3, "three")  # forgets the one that was asked for longest ago
    assert get(1, "one") is first
    assert get(2, "two").text == "two"
    assert asked == ["one", "two", "three", "two"]


def test_a_result_has_one_stub() -> None:
    written = TextCache()
    stubs = [
        written.stub(result)
        for number in (1, 2, 1)
        for unit in units_of((user_message("Find it."), *step(number, 90)))
        for result in unit.results
    ]
    assert stubs[0] is stubs[2] is not stubs[1]
    assert "part_1" in stubs[0].text
    assert stubs[0].tool_call_id == "call_1"
