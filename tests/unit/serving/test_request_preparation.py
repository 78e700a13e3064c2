import asyncio
from dataclasses import replace

import pytest

from proxy.api.fronts import CHAT, STAMP
from proxy.backends.client import Description
from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.requests import Question
from proxy.conversation.workflows import Workflow
from proxy.dialects.anthropic_messages.front import MessagesFront
from proxy.dialects.front import Sender
from proxy.errors import ContextOverflow, InvalidRequest
from proxy.facts import Omitted
from proxy.guardrails.offer import Mode, TextPolicy
from proxy.inference.preparation import Policy
from proxy.inference.turn import Turn
from proxy.profiles.known_model import Overrides
from proxy.serving.context_fitting import FittingMode
from proxy.serving.request_preparation import PreparedRequest, RequestPreparation
from proxy.serving.service_options import ServiceOptions
from tests.fakes.backend import ScriptedBackend

HELLO: JsonObject = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
SPOKEN: list[JsonValue] = [
    {"role": role, "content": f"{role} number {number} " + "word " * 100}
    for number in range(30)
    for role in ("assistant", "user")
]
LONG: JsonObject = {"model": "m", "messages": [{"role": "user", "content": "Hi"}, *SPOKEN]}


def preparation(backend: ScriptedBackend) -> RequestPreparation:
    return RequestPreparation(ServiceOptions().alone(backend), Policy())


async def prepared(
    preparing: RequestPreparation, body: JsonObject, headers: dict[str, str] | None = None
) -> PreparedRequest:
    sender = Sender(headers=headers or {})
    parsed = preparing.address(CHAT.decode(json.dump(body), sender))
    return await preparing.prepare(parsed, sender, {"x-request-id": "req_test"})


def received(
    body: JsonObject,
    headers: dict[str, str] | None = None,
    *,
    backend: ScriptedBackend | None = None,
) -> PreparedRequest:
    return asyncio.run(prepared(preparation(backend or ScriptedBackend()), body, headers))


def question(turn: Turn | None) -> Question:
    assert turn is not None
    asked = turn.next_question()
    assert asked is not None
    return asked


def test_a_request_is_read_and_its_model_looked_up() -> None:
    backend = ScriptedBackend(description=Description(("m",), window=2048))
    taken = received(HELLO, backend=backend)
    assert (taken.known.model, taken.known.window) == ("m", 2048)
    assert [message.text for message in taken.plan.messages] == ["Hi"]
    assert taken.mode is None
    assert taken.headers.keys() == {"x-request-id", "x-temper-prefix"}


@pytest.mark.parametrize(
    ("said", "is_on"), [({}, False), ({"chat_template_kwargs": {"enable_thinking": True}}, True)]
)
def test_the_operator_says_whether_a_model_thinks_where_the_client_does_not(
    said: JsonObject,
    is_on: bool,
) -> None:
    services = ServiceOptions(overrides=Overrides(thinking=False)).alone(ScriptedBackend())
    taken = asyncio.run(prepared(RequestPreparation(services, Policy()), {**HELLO, **said}))
    assert taken.plan.request.thinking.is_on is is_on


@pytest.mark.parametrize("is_blind", [True, False])
def test_pictures_are_refused_where_the_model_takes_none(*, is_blind: bool) -> None:
    preparing = preparation(ScriptedBackend(description=Description(("m",), is_blind=is_blind)))
    source: JsonObject = {"type": "base64", "media_type": "image/png", "data": "AA=="}
    shown: JsonValue = [{"role": "user", "content": [{"type": "image", "source": source}]}]
    body = json.dump({"model": "m", "max_tokens": 9, "messages": shown})
    parsed = preparing.address(MessagesFront(STAMP).decode(body, Sender()))
    preparation_ = preparing.prepare(parsed, Sender(), {"x-request-id": "req_test"})
    if is_blind:
        with pytest.raises(InvalidRequest, match=r"^capability_rejected: image_block "):
            asyncio.run(preparation_)
    else:
        assert asyncio.run(preparation_).known.model == "m"


def test_headers_override_what_the_operator_set() -> None:
    taken = received(
        HELLO,
        {
            "x-temper-text-policy": "Accept",
            "x-temper-guardrails": "observe",
            "x-temper-compaction": " report ",
        },
    )
    assert taken.plan.policy.text_policy is TextPolicy.ACCEPT
    assert taken.plan.policy.mode is Mode.OBSERVE
    assert taken.mode is FittingMode.REPORT


@pytest.mark.parametrize(
    "header", ["x-temper-text-policy", "x-temper-guardrails", "x-temper-compaction"]
)
def test_a_wish_that_nobody_knows_is_refused_by_its_header(header: str) -> None:
    with pytest.raises(InvalidRequest, match="use one of") as raised:
        received(HELLO, {header: "please"})
    assert raised.value.param == header


def test_a_prompt_that_proves_too_long_is_made_shorter_where_that_helps() -> None:
    async def scene() -> None:
        taken = preparation(ScriptedBackend())
        request = await prepared(taken, LONG)
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
        taken = preparation(backend)
        return await taken.count(await prepared(taken, HELLO))

    assert asyncio.run(count(ScriptedBackend(counts=[17]))) == 17
    assert 1 < asyncio.run(count(ScriptedBackend())) < 200


@pytest.mark.parametrize(
    ("wish", "mode"), [(None, None), (True, FittingMode.AUTO), (False, FittingMode.OFF)]
)
def test_a_language_may_say_what_it_wants_of_text_and_of_shortening(
    wish: bool | None, mode: FittingMode | None
) -> None:
    sender = Sender()
    decoded = replace(
        CHAT.decode(json.dump(HELLO), sender),
        accepts_prose=True,
        compaction=wish,
        facts=(Omitted("web_search"),),
    )
    preparing = preparation(ScriptedBackend())
    taken = asyncio.run(preparing.prepare(preparing.address(decoded), sender, {}))
    assert taken.plan.policy.text_policy is TextPolicy.ACCEPT
    assert taken.mode is mode
    assert taken.plan.facts == (Omitted("web_search"),)


@pytest.mark.parametrize("is_summary", [False, True])
def test_a_summary_waits_for_no_step(*, is_summary: bool) -> None:
    rules = Workflow(("look",))
    tools: list[JsonValue] = [{"type": "function", "function": {"name": "look"}}]
    sender = Sender()
    decoded = CHAT.decode(json.dump({**HELLO, "tools": tools}), sender)
    decoded = replace(decoded, accepts_prose=is_summary)
    services = ServiceOptions().alone(ScriptedBackend())
    preparing = RequestPreparation(services, Policy(), {"m": rules})
    taken = asyncio.run(preparing.prepare(preparing.address(decoded), sender, {}))
    assert taken.plan.offer is not None
    assert taken.plan.offer.missing_steps == (() if is_summary else ("look",))
