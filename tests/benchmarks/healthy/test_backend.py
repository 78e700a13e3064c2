"""The mock backend as a model that does everything right, and keeps account of it."""

import httpx

from benchmarks.healthy.asking import body_of
from benchmarks.healthy.ledger import Asked, read_ledger
from benchmarks.healthy.replies import LONG, RESPONDING, Wish, prose, two_calls
from benchmarks.load.replies import RESPOND
from proxy.conversation import json
from proxy.guardrails.respond import make_respond_tool
from tests.benchmarks.running import mock_backend

CHAT = "/v1/chat/completions"


def whole(wish: Wish) -> bytes:
    return body_of(Wish(wish.kind, wish.number, wish.delay_ms, wish.id, is_streamed=False))


async def message(client: httpx.AsyncClient, body: bytes) -> dict[str, json.JsonValue]:
    answer = (await client.post(CHAT, content=body)).json()
    found: dict[str, json.JsonValue] = answer["choices"][0]["message"]
    return found


async def asked(client: httpx.AsyncClient) -> dict[str, list[Asked]]:
    return read_ledger((await client.get("/asked")).content)


async def test_it_answers_in_prose_and_with_calls() -> None:
    async with mock_backend() as client:
        assert (await message(client, whole(Wish("prose", 5))))["content"] == prose(5).text
        calls = (await message(client, whole(Wish("two calls", 5))))["tool_calls"]
    functions = [{"name": call.name, "arguments": call.arguments} for call in two_calls(5).calls]
    assert isinstance(calls, list)
    assert [call["function"] for call in calls if isinstance(call, dict)] == functions


async def test_it_answers_in_the_tool_for_answers_where_that_is_offered() -> None:
    plain = whole(Wish(RESPONDING, 5))
    document = json.parse(plain)
    assert isinstance(document, dict)
    tools = document["tools"]
    assert isinstance(tools, list)
    offering = json.dump({**document, "tools": [*tools, json.parse(make_respond_tool(()).source)]})
    async with mock_backend() as client:
        assert (await message(client, plain))["content"] == prose(5).text
        await asked(client)
        assert RESPOND in json.dump_text((await message(client, offering))["tool_calls"])


async def test_a_good_model_that_is_asked_again_does_what_it_is_told() -> None:
    body = whole(Wish("prose", 5, id="5-temper"))
    async with mock_backend() as client:
        assert "tool_calls" not in await message(client, body)
        assert "tool_calls" in await message(client, body)
        questions = await asked(client)
    assert [one.body for one in questions["5-temper"]] == [body, body]


async def test_the_ledger_is_empty_once_it_was_handed_out() -> None:
    async with mock_backend() as client:
        await client.post(CHAT, content=whole(Wish("one call", 1, id="1")))
        assert list(await asked(client)) == ["1"]
        assert await asked(client) == {}


async def test_every_delta_of_a_paced_stream_has_its_time() -> None:
    wish = Wish("prose", 5, 1.0, "5")
    async with mock_backend() as client:
        stream = (await client.post(CHAT, content=body_of(wish))).text
        (question,) = (await asked(client))["5"]
    deltas = prose(5).deltas
    # behind the deltas comes the end
    assert len(question.sent) == len(deltas) + 1
    assert question.sent == sorted(question.sent)
    assert stream.count('"content":"') == len(deltas)


async def test_a_stream_without_pauses_is_sent_at_once() -> None:
    async with mock_backend() as client:
        stream = (await client.post(CHAT, content=body_of(Wish(LONG, 2, id="2")))).text
        (question,) = (await asked(client))["2"]
    assert question.sent == []
    assert stream.endswith("data: [DONE]\n\n")


async def test_a_kind_that_nobody_knows_is_refused() -> None:
    async with mock_backend() as client:
        assert (await client.post(CHAT, content=body_of(Wish("dance")))).status_code == 400
