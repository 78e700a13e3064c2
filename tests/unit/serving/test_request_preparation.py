import asyncio
from dataclasses import replace

import pytest
from msgspec import structs

from proxy.api.app import ServerOptions
from proxy.api.dialects import CHAT, STAMP
from proxy.backends.client import Description, PassthroughRequest
from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.requests import Request, UpstreamRequest
from proxy.conversation.workflows import NO_RULES, Prerequisite, Workflow
from proxy.dialects.anthropic_messages.dialect import MessagesDialect
from proxy.dialects.dialect import Client, Decoded
from proxy.dialects.openai_chat.decode import decode_request
from proxy.errors import ContextOverflow, InvalidRequest
from proxy.facts import Omitted, RuleSkipped
from proxy.guardrails.offer import Mode, TextPolicy
from proxy.inference.plan import Policy
from proxy.inference.turn import Turn
from proxy.profiles.known_model import KnownModel, Overrides
from proxy.serving.admission import Priority
from proxy.serving.assembly import tuned_changes
from proxy.serving.context_fitting import FittingMode
from proxy.serving.request_preparation import (
    Planned,
    RequestPreparation,
    takes_long,
)
from proxy.serving.services import ServiceOptions, Services
from proxy.serving.tuned import Tuned, TunedSettings
from proxy.settings import Settings
from tests.fakes.backend import ScriptedBackend

RULES = Workflow(("read",), (), ("finish",))
OTHERS = Workflow(("ask",), (), ("finish",))


class Catalogue(ScriptedBackend):
    """A backend of which every name is another model, but for the case it is written in."""

    async def describe(self, model: str) -> Description:
        return Description((model,), identity=model.casefold())


def request(model: str, *tools: str) -> Request:
    offered = [f'{{"type":"function","function":{{"name":"{name}"}}}}' for name in tools]
    body = f'{{"model":"{model}","messages":[{{"role":"user","content":"Hi"}}],"tools":['
    return decode_request(f"{body}{','.join(offered)}]}}".encode())


def ordered(
    services: Services, rules: dict[str, Workflow], asked: Request
) -> tuple[Workflow, tuple[RuleSkipped, ...]]:
    async def look() -> tuple[Workflow, tuple[RuleSkipped, ...]]:
        service = services.find(asked.model)
        known = await service.look_up(asked.model)
        preparation = RequestPreparation(services, Policy(), rules)
        return await preparation.rules_for(asked, service, known)

    return asyncio.run(look())


def rules_of(services: Services, rules: dict[str, Workflow], model: str) -> Workflow:
    return ordered(services, rules, request(model, "read", "ask", "finish"))[0]


@pytest.mark.parametrize("section", ["default", "qwen", "qwen.gguf", "my-agent"])
@pytest.mark.parametrize("model", ["default", "qwen", "gpt-4", ""])
def test_the_only_model_keeps_its_rules_whatever_it_is_called(section: str, model: str) -> None:
    backend = ScriptedBackend(description=Description(("qwen", "qwen.gguf")))
    assert rules_of(ServerOptions().alone(backend), {section: RULES}, model) == RULES


def test_of_several_rules_those_under_the_name_that_was_asked_for_hold() -> None:
    services = ServerOptions().alone(ScriptedBackend(description=Description(("qwen",))))
    rules = {"first": RULES, "second": OTHERS}
    assert rules_of(services, rules, "second") == OTHERS
    assert rules_of(services, rules, "third") == RULES


@pytest.mark.parametrize(("model", "found"), [("a", RULES), ("A", RULES), ("b", NO_RULES)])
def test_among_many_models_rules_stay_with_theirs(model: str, found: Workflow) -> None:
    assert rules_of(ServerOptions().alone(Catalogue()), {"a": RULES}, model) == found


@pytest.mark.parametrize("section", ["large", "coder"])
@pytest.mark.parametrize(
    ("model", "found"), [("large", RULES), ("coder", RULES), ("small", NO_RULES)]
)
def test_an_alias_is_the_model_itself(section: str, model: str, found: Workflow) -> None:
    serving, backend = ServerOptions(), ScriptedBackend(description=Description(("same",)))
    large = serving.service(backend, name="large", aliases=("coder",))
    services = Services([serving.service(backend, name="small"), large])
    assert rules_of(services, {"gone": OTHERS, section: RULES}, model) == found


def test_a_rule_that_waits_for_what_is_not_offered_is_left_out_and_told() -> None:
    services = ServerOptions().alone(ScriptedBackend())
    rules = replace(RULES, prerequisites=(Prerequisite("edit", "read"),))
    left, skipped = ordered(services, {"m": rules}, request("m", "edit", "finish"))
    assert (left, skipped) == (Workflow((), (), ("finish",)), (RuleSkipped("read"),))


def test_a_client_that_has_rules_of_its_own_or_no_tools_is_left_alone() -> None:
    services = ServerOptions().alone(ScriptedBackend())
    own = replace_workflow(request("m", "finish"), OTHERS)
    assert ordered(services, {"m": RULES}, own) == (NO_RULES, ())
    assert ordered(services, {"m": RULES}, request("m")) == (NO_RULES, ())


def replace_workflow(asked: Request, workflow: Workflow) -> Request:
    return Request(asked.model, asked.messages, asked.fields, asked.tools, workflow=workflow)


HELLO: JsonObject = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
SPOKEN: list[JsonValue] = [
    {"role": role, "content": f"{role} number {number} " + "word " * 100}
    for number in range(30)
    for role in ("assistant", "user")
]
LONG: JsonObject = {"model": "m", "messages": [{"role": "user", "content": "Hi"}, *SPOKEN]}


def preparation(backend: ScriptedBackend) -> RequestPreparation:
    return RequestPreparation(ServiceOptions().alone(backend), Policy())


async def test_what_was_earned_for_a_model_counts_below_headers() -> None:
    backend = ScriptedBackend(description=Description(("m",)))

    class Earned(TunedSettings):
        def of(self, known: KnownModel) -> Tuned:
            return tuned_changes(Settings(), {"guardrails": {"text_policy": "respond"}})

    preparing = RequestPreparation(ServiceOptions(tuned=Earned()).alone(backend), Policy())
    assert (await prepared(preparing, HELLO)).plan.policy.text_policy is TextPolicy.RESPOND
    header = {"x-temper-text-policy": "accept"}
    assert (await prepared(preparing, HELLO, header)).plan.policy.text_policy is TextPolicy.ACCEPT
    (told,) = await preparing.services.models()
    assert told.details["tuned"] == "text_policy = respond"


async def prepared(
    preparing: RequestPreparation, body: JsonObject, headers: dict[str, str] | None = None
) -> Planned:
    client = Client(headers=headers or {})
    return await planned(preparing, CHAT.decode(json.dump(body), client), client)


async def planned(
    preparing: RequestPreparation, decoded: Decoded, client: Client | None = None
) -> Planned:
    resolved = await preparing.resolve(decoded, client or Client())
    return await preparing.plan(resolved, {"x-request-id": "req_test"})


def received(
    body: JsonObject,
    headers: dict[str, str] | None = None,
    *,
    backend: ScriptedBackend | None = None,
) -> Planned:
    return asyncio.run(prepared(preparation(backend or ScriptedBackend()), body, headers))


def upstream_request(turn: Turn | None) -> UpstreamRequest:
    assert turn is not None
    asked = turn.next_request()
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
    said: JsonObject, is_on: bool
) -> None:
    services = ServiceOptions(overrides=Overrides(thinking=False)).alone(ScriptedBackend())
    taken = asyncio.run(prepared(RequestPreparation(services, Policy()), {**HELLO, **said}))
    assert taken.plan.request.thinking.is_on is is_on


@pytest.mark.parametrize(
    ("said", "effort"),
    [
        ({}, "low"),
        ({"reasoning_effort": "high"}, "high"),
        ({"reasoning_effort": "none"}, ""),
        ({"chat_template_kwargs": {"reasoning_effort": "high"}}, ""),
        ({"thinking_budget_tokens": 9}, ""),
    ],
)
def test_the_operator_says_how_much_a_model_thinks_where_the_client_does_not(
    said: JsonObject, effort: str
) -> None:
    services = ServiceOptions(overrides=Overrides(effort="low")).alone(ScriptedBackend())
    taken = asyncio.run(prepared(RequestPreparation(services, Policy()), {**HELLO, **said}))
    assert taken.plan.request.thinking.effort == effort


@pytest.mark.parametrize("is_blind", [True, False])
def test_pictures_are_refused_where_the_model_takes_none(*, is_blind: bool) -> None:
    preparing = preparation(ScriptedBackend(description=Description(("m",), is_blind=is_blind)))
    source: JsonObject = {"type": "base64", "media_type": "image/png", "data": "AA=="}
    shown: JsonValue = [{"role": "user", "content": [{"type": "image", "source": source}]}]
    body = json.dump({"model": "m", "max_tokens": 9, "messages": shown})
    planning = planned(preparing, MessagesDialect(STAMP).decode(body, Client()))
    if is_blind:
        with pytest.raises(InvalidRequest, match=r"^capability_rejected: image_block "):
            asyncio.run(planning)
    else:
        assert asyncio.run(planning).known.model == "m"


def test_a_picture_that_a_tool_returned_is_hidden_from_a_model_that_takes_none() -> None:
    preparing = preparation(ScriptedBackend(description=Description(("m",), is_blind=True)))
    source: JsonObject = {"type": "base64", "media_type": "image/png", "data": "AA=="}
    use: JsonObject = {"type": "tool_use", "id": "t", "name": "read", "input": {}}
    picture: JsonObject = {"type": "image", "source": source}
    result: JsonObject = {"type": "tool_result", "tool_use_id": "t", "content": [picture]}
    told: JsonValue = [
        {"role": "user", "content": "Look."},
        {"role": "assistant", "content": [use]},
        {"role": "user", "content": [result]},
    ]
    body = json.dump({"model": "m", "max_tokens": 9, "messages": told})
    taken = asyncio.run(planned(preparing, MessagesDialect(STAMP).decode(body, Client())))
    sent = b"".join(message.source for message in taken.plan.messages)
    assert b"image_url" not in sent
    assert b"An image that this model cannot read." in sent


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


async def test_a_prompt_that_proves_too_long_is_made_shorter_where_that_helps() -> None:
    taken = preparation(ScriptedBackend())
    request = await prepared(taken, LONG)
    whole = upstream_request(await taken.fit(request, lambda: True))
    assert len(whole.messages) == 61
    overflow = ContextOverflow("too long", 9000, 4096)
    shorter = upstream_request(await taken.shorten(request, lambda: True, overflow))
    assert len(b"".join(one.source for one in shorter.messages)) < 20_000

    wide = ContextOverflow("too long", 100_001, 100_000)
    assert await taken.shorten(request, lambda: True, wide) is None
    narrow = ContextOverflow("too long", 9000, 150)
    assert await taken.shorten(request, lambda: True, narrow) is None


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
    client = Client()
    decoded = structs.replace(
        CHAT.decode(json.dump(HELLO), client),
        accepts_prose=True,
        compaction=wish,
        facts=(Omitted("web_search"),),
    )
    preparing = preparation(ScriptedBackend())
    taken = asyncio.run(planned(preparing, decoded))
    assert taken.plan.policy.text_policy is TextPolicy.ACCEPT
    assert taken.mode is mode
    assert taken.plan.facts == (Omitted("web_search"),)


@pytest.mark.parametrize("is_summary", [False, True])
def test_a_summary_waits_for_no_step(*, is_summary: bool) -> None:
    rules = Workflow(("look",))
    tools: list[JsonValue] = [{"type": "function", "function": {"name": "look"}}]
    client = Client()
    decoded = CHAT.decode(json.dump({**HELLO, "tools": tools}), client)
    decoded = structs.replace(decoded, accepts_prose=is_summary)
    services = ServiceOptions().alone(ScriptedBackend())
    preparing = RequestPreparation(services, Policy(), {"m": rules})
    taken = asyncio.run(planned(preparing, decoded))
    assert taken.plan.offer is not None
    assert taken.plan.offer.missing_steps == (() if is_summary else ("look",))


@pytest.mark.parametrize(
    ("owner", "wished", "given"),
    [
        ("ann", "", "normal"),
        ("ann", "high", "normal"),
        ("ann", " LOW ", "low"),
        ("", "high", "normal"),
        ("boss", "high", "high"),
        ("batch", "", "low"),
        ("batch", "high", "low"),
        ("boss", "", "high"),
        ("boss", "normal", "normal"),
    ],
)
def test_a_client_has_the_priority_it_wishes_up_to_that_of_its_key(
    owner: str, wished: str, given: str
) -> None:
    limits = {"batch": Priority.LOW, "boss": Priority.HIGH}
    services = ServiceOptions().alone(ScriptedBackend())
    preparing = RequestPreparation(services, Policy(), priorities=limits)
    headers = {"x-temper-priority": wished} if wished else {}
    assert preparing.priority_of(Client(owner=owner, headers=headers)).value == given
    with pytest.raises(InvalidRequest, match="use one of: high, normal, low"):
        preparing.priority_of(Client(headers={"x-temper-priority": "now"}))


ORDERED = b'{"model":"m","prompt":"Hi","id_slot":0,"pri\\u006frity":-9,"seed":1}'


@pytest.mark.parametrize("has_priorities", [True, False])
def test_a_body_orders_nothing_in_an_engine_behind_priorities(*, has_priorities: bool) -> None:
    limits = {"batch": Priority.LOW} if has_priorities else {}
    services = ServiceOptions().alone(ScriptedBackend())
    preparing = RequestPreparation(services, Policy(), priorities=limits)
    fields = json.split_object(ORDERED)
    decoded = CHAT.decode(b'{"messages":[{"role":"user","content":"Hi"}]}', Client())
    request = structs.replace(decoded.request, model="m", fields=fields)
    decoded = structs.replace(decoded, request=request)
    resolved = asyncio.run(preparing.resolve(decoded))
    passage, _ = preparing.relay(PassthroughRequest("/v1/completions", "prompt", "m", fields))
    kept = {"model", "prompt", "seed"} if has_priorities else set(fields)
    assert resolved.request.fields.keys() == passage.fields.keys() == kept
    omitted = (Omitted("id_slot"), Omitted("priority")) if has_priorities else ()
    assert resolved.decoded.facts == omitted


@pytest.mark.parametrize(
    ("body", "is_slow"),
    [
        (b"{}" * 9_000, False),  # small, however many parts it has
        (b"a" * 2**20, False),  # large, and one text
        (b"{}" * 2**17, True),
        (b"a" * (2**20 + 1), True),
    ],
)
def test_what_takes_long_is_large_and_has_many_parts_or_is_huge(body: bytes, is_slow: bool) -> None:
    assert takes_long(body) is is_slow
    assert takes_long(body[:100], body[100:]) is is_slow
