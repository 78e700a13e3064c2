"""The mock backend speaks what a llama-server speaks: Temper's own decoder and httpx read it."""

import pytest

from benchmarks.load.replies import RESPOND, STAMP_DIGITS
from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.conversation.replies import (
    ReplyEvent,
    ReplyFinished,
    TextDelta,
    ToolCallArgumentsDelta,
    ToolCallStarted,
    UsageReported,
)
from proxy.dialects.openai_chat.replies import ChunkDecoder, StreamedError
from tests.benchmarks.running import mock_backend

CHAT = "/v1/chat/completions"


def request(wish: str, *tools: str, **others: json.JsonValue) -> JsonObject:
    offered: list[json.JsonValue] = [
        {"type": "function", "function": {"name": name}} for name in tools
    ]
    messages: list[json.JsonValue] = [{"role": "user", "content": f"Now then. {wish}"}]
    return {"model": "mock", "messages": messages, "tools": offered, **others}


async def streamed(body: JsonObject) -> list[ReplyEvent]:
    decoder = ChunkDecoder()
    events: list[ReplyEvent] = []
    async with mock_backend() as client:
        answer = await client.post(CHAT, json={**body, "stream": True})
        assert answer.headers["content-type"] == "text/event-stream"
        for line in answer.text.split("\n\n"):
            for part in decoder.feed(line.removeprefix("data: ")):
                assert not isinstance(part, StreamedError)
                events.append(part)
    return events


def text_of(events: list[ReplyEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


def arguments_of(events: list[ReplyEvent]) -> str:
    deltas = (event for event in events if isinstance(event, ToolCallArgumentsDelta))
    return "".join(delta.text for delta in deltas)


async def test_prose_is_streamed_token_by_token() -> None:
    events = await streamed(request("[[prose;tokens=3]]"))
    assert [event.text for event in events if isinstance(event, TextDelta)] == [
        " word0",
        " word1",
        " word2",
    ]
    assert events[-1] == ReplyFinished("stop")


async def test_usage_comes_when_it_is_asked_for() -> None:
    options: JsonObject = {"include_usage": True}
    events = await streamed(request("[[prose;tokens=3]]", stream_options=options))
    assert [event.usage for event in events if isinstance(event, UsageReported)] == [
        {"prompt_tokens": 1000, "completion_tokens": 3, "total_tokens": 1003}
    ]


async def test_a_call_has_whole_arguments() -> None:
    events = await streamed(request("[[call]]", "get_weather"))
    assert [event.name for event in events if isinstance(event, ToolCallStarted)] == ["get_weather"]
    assert json.parse(arguments_of(events)) == {"city": "Paris", "days": 3}
    assert events[-1] == ReplyFinished("tool_calls")


async def test_prose_goes_into_the_respond_tool_where_it_is_offered() -> None:
    events = await streamed(request("[[prose;tokens=2]]", "get_weather", RESPOND))
    assert [event.name for event in events if isinstance(event, ToolCallStarted)] == [RESPOND]
    assert json.parse(arguments_of(events)) == {"message": " word0 word1"}
    assert text_of(events) == ""


async def test_a_long_argument_has_as_many_tokens_as_were_asked_for() -> None:
    arguments = json.parse(arguments_of(await streamed(request("[[arguments;tokens=30]]"))))
    assert isinstance(arguments, dict)
    assert str(arguments["text"]).count("word") == 30
    assert '"word"' in str(arguments["text"])


async def test_tokens_that_take_time_tell_when_they_were_sent() -> None:
    events = await streamed(request("[[prose;tokens=3;delay_ms=1]]"))
    stamps = text_of(events).split()
    assert [len(stamp) for stamp in stamps] == [STAMP_DIGITS] * 3
    assert sorted(stamps) == stamps
    assert int(stamps[0]) > 0


@pytest.mark.parametrize("wish", ["[[prose;tokens=3]]", "[[prose;tokens=3;delay_ms=1]]"])
async def test_a_whole_answer_says_the_same_in_one_piece(wish: str) -> None:
    async with mock_backend() as client:
        answer = (await client.post(CHAT, json=request(wish))).json()
    assert answer["object"] == "chat.completion"
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert len(answer["choices"][0]["message"]["content"].split()) == 3


async def test_requests_follow_one_another_on_a_connection() -> None:
    async with mock_backend() as client:
        first = await client.post(CHAT, json=request("[[call]]"))
        second = await client.post(CHAT, json=request("[[prose;tokens=1]]"))
    assert first.json()["choices"][0]["finish_reason"] == "tool_calls"
    assert second.json()["choices"][0]["message"]["content"] == " word0"


async def test_it_has_the_documents_of_a_llama_server() -> None:
    async with mock_backend() as client:
        assert (await client.get("/health")).json() == {"status": "ok"}
        assert "tools" in (await client.get("/props")).json()["chat_template"]
        assert len((await client.get("/v1/models")).json()["data"]) == 1
        assert (await client.get("/nothing")).status_code == 404


@pytest.mark.parametrize("content", ["[[dance]]", "[[prose;tokens=many]]", "[[prose;quickly]]"])
async def test_a_wish_that_nobody_knows_is_refused(content: str) -> None:
    async with mock_backend() as client:
        assert (await client.post(CHAT, json=request(content))).status_code == 400
