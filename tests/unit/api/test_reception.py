import asyncio

import pytest
from starlette.requests import Request as HttpRequest

from proxy.api.app import ServerOptions
from proxy.api.limits import BodyLimits
from proxy.api.reception import Received, Reception, asker, request_id
from proxy.backends.client import Description
from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.requests import Question
from proxy.errors import ContextOverflow, InvalidRequest
from proxy.guardrails.offer import Mode, TextPolicy
from proxy.inference.preparation import Policy
from proxy.inference.turn import Turn
from proxy.serving.context_fitting import FittingMode
from tests.fakes.asgi import HandMadeClient
from tests.fakes.backend import ScriptedBackend

HELLO: JsonObject = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
SPOKEN: list[JsonValue] = [
    {"role": role, "content": f"{role} number {number} " + "word " * 100}
    for number in range(30)
    for role in ("assistant", "user")
]
LONG: JsonObject = {"model": "m", "messages": [{"role": "user", "content": "Hi"}, *SPOKEN]}


def reception(backend: ScriptedBackend, *, forwards: bool = False) -> Reception:
    return Reception(ServerOptions().alone(backend), Policy(), BodyLimits(), forwards)


async def prepared(reception: Reception, http: HttpRequest) -> Received:
    return await reception.receive(http, await reception.read(http))


def received(
    body: JsonObject,
    headers: dict[str, str] | None = None,
    *,
    backend: ScriptedBackend | None = None,
    forwards: bool = False,
) -> Received:
    client = HandMadeClient(json.dump(body), "POST", headers=headers or {})
    http = HttpRequest(client.scope, client.receive)
    return asyncio.run(prepared(reception(backend or ScriptedBackend(), forwards=forwards), http))


def question(turn: Turn | None) -> Question:
    assert turn is not None
    asked = turn.next_question()
    assert asked is not None
    return asked


def test_a_request_is_read_and_its_model_looked_up() -> None:
    backend = ScriptedBackend(description=Description(("m",), window=2048))
    taken = received(HELLO, backend=backend)
    assert (taken.known.model, taken.known.window) == ("m", 2048)
    assert [message.text for message in taken.draft.messages] == ["Hi"]
    assert taken.mode is None
    assert taken.headers.keys() == {"x-request-id", "x-temper-prefix"}


def test_headers_override_what_the_operator_set() -> None:
    taken = received(
        HELLO,
        {
            "x-temper-text-policy": "Accept",
            "x-temper-guardrails": "observe",
            "x-temper-compaction": " report ",
        },
    )
    assert taken.draft.policy.text_policy is TextPolicy.ACCEPT
    assert taken.draft.policy.mode is Mode.OBSERVE
    assert taken.mode is FittingMode.REPORT


@pytest.mark.parametrize(
    "header", ["x-temper-text-policy", "x-temper-guardrails", "x-temper-compaction"]
)
def test_a_wish_that_nobody_knows_is_refused_by_its_header(header: str) -> None:
    with pytest.raises(InvalidRequest, match="use one of") as raised:
        received(HELLO, {header: "please"})
    assert raised.value.param == header


@pytest.mark.parametrize("forwards", [True, False])
def test_only_some_headers_travel(*, forwards: bool) -> None:
    sent = {"authorization": "Bearer k", "traceparent": "00-1", "cookie": "a=b"}
    headers = received(HELLO, sent, forwards=forwards).headers
    own = {"authorization": "Bearer k"} if forwards else {}
    prefix = headers.pop("x-temper-prefix")
    assert len(prefix) == 16
    assert headers == {**own, "traceparent": "00-1", "x-request-id": "req_test"}


def test_a_prompt_that_proves_too_long_is_made_shorter_where_that_helps() -> None:
    async def scene() -> None:
        taken = reception(ScriptedBackend())
        client = HandMadeClient(json.dump(LONG), "POST")
        request = await prepared(taken, HttpRequest(client.scope, client.receive))
        whole = question(await taken.turn(request, lambda: True))
        assert len(whole.messages) == 61
        overflow = ContextOverflow("too long", 9000, 4096)
        shorter = question(await taken.shorter(request, lambda: True, overflow))
        assert len(b"".join(one.source for one in shorter.messages)) < 20_000

        wide = ContextOverflow("too long", 100_001, 100_000)
        assert await taken.shorter(request, lambda: True, wide) is None
        narrow = ContextOverflow("too long", 9000, 150)
        assert await taken.shorter(request, lambda: True, narrow) is None

    asyncio.run(scene())


def test_tokens_are_counted_by_the_backend_or_else_estimated() -> None:
    async def count(backend: ScriptedBackend) -> int:
        taken = reception(backend)
        client = HandMadeClient(json.dump(HELLO), "POST")
        return await taken.count(await prepared(taken, HttpRequest(client.scope, client.receive)))

    assert asyncio.run(count(ScriptedBackend(counts=[17]))) == 17
    assert 1 < asyncio.run(count(ScriptedBackend())) < 200


def test_a_request_has_the_id_that_it_was_given() -> None:
    assert request_id(HttpRequest(HandMadeClient().scope)) == "req_test"


@pytest.mark.parametrize(
    ("headers", "owner", "who"),
    [
        ({"authorization": "Basic 1", "x-api-key": "k"}, "alice", "alice"),
        ({}, "alice", "alice"),
        ({"authorization": "Bearer k", "x-api-key": "other"}, "", "Bearer k"),
        ({"x-api-key": "k"}, "", "k"),
        ({}, "", "10.0.0.7"),
    ],
)
def test_who_asks_is_the_owner_of_the_key_or_else_whoever_it_seems_to_be(
    headers: dict[str, str], owner: str, who: str
) -> None:
    scope = HandMadeClient(headers=headers).scope
    scope.update(client=("10.0.0.7", 5), state={"owner": owner})
    assert asker(HttpRequest(scope)) == who


def test_nothing_is_known_of_who_comes_over_a_socket_without_addresses() -> None:
    assert asker(HttpRequest(HandMadeClient().scope)) == ""


@pytest.mark.parametrize("text", ["Hi", "x" * 2**21], ids=["small", "large"])
def test_a_body_is_read_the_same_however_large(text: str) -> None:
    said: JsonObject = {"role": "user", "content": text}
    assert received({"model": "m", "messages": [said]}).draft.request.messages[0].text == text
    with pytest.raises(InvalidRequest, match="messages"):
        received({"model": "m", "messages": text})


def test_others_are_served_while_a_large_body_is_read() -> None:
    said: list[JsonValue] = [{"role": "user", "content": "Hello there."}] * 30_000
    client = HandMadeClient(json.dump({"model": "m", "messages": said}), "POST")

    async def scene() -> int:
        served = 0
        http = HttpRequest(client.scope, client.receive)
        reading = asyncio.create_task(reception(ScriptedBackend()).read(http))
        while not reading.done():
            await asyncio.sleep(0)
            served += 1
        await reading
        return served

    assert asyncio.run(scene()) > 50
