"""Custom clients and compactions of a program, used by an agent."""

from collections.abc import AsyncIterator, Mapping

import pytest

from proxy.agents.custom import ClientBackend, CustomCompaction
from proxy.backends.client import Description, Health, PassthroughRequest
from proxy.context.budget import Window
from proxy.conversation.json import JsonObject
from proxy.conversation.messages import user_message
from proxy.errors import BackendRefused, ContextOverflow
from temper import Agent, BackendFailed, Model
from tests.fakes.agents import get_weather
from tests.unit.context.conversations import Pieces, words


async def test_an_agent_sends_its_requests_to_a_custom_client() -> None:
    requests: list[JsonObject] = []

    async def stream(body: JsonObject) -> AsyncIterator[JsonObject]:
        requests.append(body)
        message: JsonObject = {"content": "It is fine."}
        if len(requests) == 1:
            text = '<tool_call>{"name": "get_weather", "arguments": {"city": "Oslo"}}</tool_call>'
            message = {"content": text}
        yield {"choices": [{"index": 0, "delta": message}]}
        yield {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}

    async def complete(body: JsonObject) -> JsonObject:
        return {"choices": [{"message": {"content": "Hi."}, "finish_reason": "stop"}]}

    async with Model(client=stream) as model:
        result = await Agent(model, [get_weather]).run("How is Oslo?")
    assert result.output == "It is fine."
    assert result.rounds[0].outcomes[0].text == "It is 21 degrees in Oslo."
    async with Model(client=complete) as model:
        assert (await Agent(model).run("Hi")).output == "Hi."


async def test_an_exception_or_an_error_of_a_custom_client_raises_backend_failed() -> None:
    async def broken_client(body: JsonObject) -> JsonObject:
        raise ConnectionError("gone")

    with pytest.raises(ValueError, match="cannot be combined"):
        Model("http://127.0.0.1:9", client=broken_client)
    async with Model(client=broken_client) as model:
        with pytest.raises(BackendFailed, match="client failed: ConnectionError: gone"):
            await Agent(model).run("Hi")

    async def refusing(body: JsonObject) -> JsonObject:
        return {"error": {"message": "too hot"}}

    async def return_invalid_choices(body: JsonObject) -> JsonObject:
        return {"choices": 3}

    async with Model(client=refusing) as model:
        with pytest.raises(BackendFailed, match="too hot"):
            await Agent(model).run("Hi")
    async with Model(client=return_invalid_choices) as model:
        with pytest.raises(BackendFailed, match="returned an invalid reply"):
            await Agent(model).run("Hi")


async def test_a_custom_client_supports_only_chats() -> None:
    backend = ClientBackend(lambda body: body, 2048)
    assert await backend.count_texts(["a"], {}) is None
    assert await backend.models() == ()
    assert await backend.health() is Health.READY
    assert await backend.describe("m") == Description(("m",), window=2048)
    with pytest.raises(BackendRefused, match="only chat requests, not /v1/embeddings"):
        backend.relay(PassthroughRequest("/v1/embeddings", "input", "m", {}), {})


def test_a_custom_compaction_is_called_only_for_long_histories_and_must_shorten_enough() -> None:
    def keep(messages: list[JsonObject], room: int) -> list[Mapping[str, object]]:
        assert room > 0
        return [*messages]

    compaction = CustomCompaction(keep, Pieces(), Window(2_000), 0.9)
    short = (user_message("Hi"),)
    assert compaction.fit(short, (), None).messages is short
    with pytest.raises(ContextOverflow, match="compaction leaves too many"):
        compaction.fit((user_message(words(5_000)),), (), None)
