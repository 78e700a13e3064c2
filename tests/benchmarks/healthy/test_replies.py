import jsonschema
import pytest

from benchmarks.healthy import replies
from benchmarks.healthy.material import ANSWERS, CALLS, PREAMBLES, TOOLS
from benchmarks.healthy.replies import KINDS, LONG, LONG_TOKENS, Reply, Wish, read_wish, tokens
from benchmarks.load.replies import RESPOND, Event, wish_of
from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.conversation.replies import (
    ReplyEvent,
    TextDelta,
    ToolCallArgumentsDelta,
    ToolCallStarted,
    UsageReported,
)
from proxy.dialects.openai_chat.replies import ChunkDecoder, StreamedError

ALL = range(1, 1 + max(len(ANSWERS), len(CALLS), len(PREAMBLES)))


def schema_of(name: str) -> JsonObject:
    for tool in TOOLS:
        function = tool["function"]
        assert isinstance(function, dict)
        if function["name"] == name:
            schema = function["parameters"]
            assert isinstance(schema, dict)
            return schema
    raise AssertionError(f"{name} is not offered")


@pytest.mark.parametrize("kind", KINDS)
def test_every_call_satisfies_the_schema_of_its_tool(kind: str) -> None:
    for number in ALL:
        for call in KINDS[kind](number).calls:
            jsonschema.validate(json.parse(call.arguments), schema_of(call.name))


def test_two_calls_are_never_the_same() -> None:
    for number in ALL:
        one, other = replies.two_calls(number).calls
        assert one != other


def test_no_two_answers_are_equal() -> None:
    assert len({replies.prose(number) for number in range(1, 201)}) == 200


@pytest.mark.parametrize("kind", KINDS)
def test_tokens_are_the_reply_and_nothing_else(kind: str) -> None:
    for number in ALL:
        reply = KINDS[kind](number)
        said: dict[str, str] = {}
        for delta in reply.deltas:
            said[delta.channel] = said.get(delta.channel, "") + delta.text
        assert said.pop("text", "") == reply.text
        for place, call in enumerate(reply.calls):
            assert said.pop(f"name {place}") == call.name
            assert said.pop(f"arguments {place}") == call.arguments
        assert said == {}


def test_the_long_argument_has_the_length_that_its_name_promises() -> None:
    for number in (1, 2):
        (call,) = KINDS[LONG](number).calls
        assert LONG_TOKENS <= len(tokens(call.arguments)) < LONG_TOKENS + 100


def test_a_mark_is_read_as_it_was_written() -> None:
    wish = Wish("two calls", 7, 1.5, "7-direct")
    assert read_wish(wish_of(f"Now then. {wish.mark} And?".encode())) == wish


@pytest.mark.parametrize("wish", ["healthy;kind=dance", "healthy", "healthy;kind=prose;number=x"])
def test_a_wish_that_nobody_knows_is_refused(wish: str) -> None:
    with pytest.raises(ValueError, match=r"knows no|invalid literal"):
        read_wish(wish.encode())


def decoded(events: tuple[bytes | Event, ...]) -> list[ReplyEvent]:
    decoder = ChunkDecoder()
    found: list[ReplyEvent] = []
    for event in events:
        raw = event if isinstance(event, bytes) else event.before
        for part in decoder.feed(raw.decode().removeprefix("data: ").strip()):
            assert not isinstance(part, StreamedError)
            found.append(part)
    return found


def test_prose_goes_into_the_tool_for_answers_token_by_token() -> None:
    reply = Reply('He said "yes"\nand left.')
    rendered = replies.streamed(reply, responds=RESPOND)
    events = decoded((*rendered.start, *rendered.tokens, *rendered.end))
    assert [event.name for event in events if isinstance(event, ToolCallStarted)] == [RESPOND]
    written = "".join(event.text for event in events if isinstance(event, ToolCallArgumentsDelta))
    assert json.parse(written) == {"message": reply.text}
    assert len(rendered.tokens) == len(reply.deltas)


def test_a_stream_says_what_the_whole_answer_says() -> None:
    reply = replies.prose_and_call(3)
    rendered = replies.streamed(reply, has_usage=True)
    events = decoded((*rendered.start, *rendered.tokens, *rendered.end))
    body = json.parse(replies.whole(reply))
    assert isinstance(body, dict)
    text = "".join(event.text for event in events if isinstance(event, TextDelta))
    (usage,) = (event.usage for event in events if isinstance(event, UsageReported))
    choices = body["choices"]
    assert isinstance(choices, list)
    assert isinstance(choices[0], dict)
    message = choices[0]["message"]
    assert isinstance(message, dict)
    assert (message["content"], body["usage"]) == (text, usage)
    arguments = "".join(one.text for one in events if isinstance(one, ToolCallArgumentsDelta))
    assert arguments == reply.calls[0].arguments
    assert reply.calls[0].name in json.dump_text(message["tool_calls"])
