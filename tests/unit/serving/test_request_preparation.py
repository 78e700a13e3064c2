from dataclasses import replace

import pytest
from msgspec import structs

from proxy.api.dialects import CHAT, STAMP
from proxy.backends.client import Description, PassthroughRequest
from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.replies import ReasoningDelta, ReplyFinished, ToolCalled
from proxy.conversation.requests import UpstreamRequest
from proxy.conversation.tools import ToolCall
from proxy.conversation.workflows import NO_RULES, Prerequisite, Workflow
from proxy.dialects.anthropic_messages.dialect import MessagesDialect
from proxy.dialects.dialect import Client, Decoded
from proxy.dialects.openai_chat.decode import decode_request
from proxy.errors import ContextOverflow, InvalidRequest
from proxy.facts import Omitted, RuleSkipped
from proxy.guardrails.offer import Mode, TextPolicy
from proxy.inference.kept_reasoning import ReasoningStore
from proxy.inference.plan import Policy
from proxy.inference.turn import Turn
from proxy.profiles.files import load_profiles
from proxy.profiles.known_model import KnownModel, Overrides
from proxy.profiles.tuned import Tuned, TunedSettings
from proxy.serving.admission import Priority
from proxy.serving.assembly import tuned_changes
from proxy.serving.context_fitting import FittingMode, TokenCount
from proxy.serving.request_preparation import Planned, RequestPreparation, takes_long
from proxy.serving.services import ServiceOptions, Services
from proxy.settings import Settings
from tests.fakes.backend import ScriptedBackend

OPTIONS = ServiceOptions()
RULES = Workflow(("read",), (), ("finish",))
OTHERS = Workflow(("ask",), (), ("finish",))
HELLO: JsonObject = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
HISTORY: list[JsonValue] = [
    {"role": role, "content": f"{role} number {number} " + "word " * 100}
    for number in range(30)
    for role in ("assistant", "user")
]
LONG: JsonObject = {"model": "m", "messages": [{"role": "user", "content": "Hi"}, *HISTORY]}


class Catalogue(ScriptedBackend):
    """A backend with a model for each name; names that differ only in case are equal."""

    async def describe(self, model: str) -> Description:
        return Description((model,), identity=model.casefold())


def single_service(
    description: Description | None = None, options: ServiceOptions = OPTIONS
) -> Services:
    return options.services_for(ScriptedBackend(description=description))


async def plan(
    body: JsonObject | Decoded,
    services: Services | None = None,
    headers: dict[str, str] | None = None,
    workflows: dict[str, Workflow] | None = None,
) -> Planned:
    preparation = RequestPreparation(services or single_service(), Policy(), workflows or {})
    client = Client(headers=headers or {})
    decoded = body if isinstance(body, Decoded) else CHAT.decode(json.dump(body), client)
    resolved = await preparation.resolve(decoded, client)
    return await preparation.plan(resolved, {"x-request-id": "req_test"})


CALL: JsonObject = {
    "role": "assistant",
    "content": None,
    "tool_calls": [
        {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    ],
}
LOOKED: JsonObject = {"role": "tool", "tool_call_id": "call_1", "content": "Nothing."}


async def completed_members(engine: str, *, profile: str, trusts_engines: bool = False) -> set[str]:
    """Answer a request with a call; return the members that the next request adds to the call."""
    known = next(known for known in load_profiles() if known.name == profile)
    options = replace(OPTIONS, overrides=Overrides(known))
    services = single_service(Description(("m",), engine=engine), options)
    preparation = RequestPreparation(
        services, Policy(), reasoning=ReasoningStore(), trusts_engines=trusts_engines
    )

    async def plan_chat(*more: JsonObject) -> Planned:
        user: JsonObject = {"role": "user", "content": "Look."}
        body: JsonObject = {"model": "m", "messages": [user, *more]}
        resolved = await preparation.resolve(CHAT.decode(json.dump(body), Client()))
        return await preparation.plan(resolved, {})

    first = (await plan_chat()).reasoning
    if first is not None:
        called = ToolCalled(0, ToolCall("call_1", "look", "{}"))
        first.add([ReasoningDelta("Well."), called, ReplyFinished("tool_calls")])
    messages = (await plan_chat(CALL, LOOKED)).plan.messages
    return json.split_object(messages[1].source).keys() - CALL.keys()


@pytest.mark.parametrize(
    ("engine", "members"),
    [
        ("llama.cpp", {"reasoning_content"}),
        ("SGLang", {"reasoning_content"}),
        ("Ollama", {"reasoning_content"}),
        ("vLLM", {"reasoning_content", "reasoning"}),
        ("LM Studio", set()),
        ("OpenAI-compatible", set()),
    ],
)
async def test_reasoning_is_restored_for_engines_that_accept_it(
    engine: str, members: set[str]
) -> None:
    assert await completed_members(engine, profile="gpt-oss") == members
    trusted = await completed_members(engine, profile="gpt-oss", trusts_engines=True)
    assert trusted == (members or {"reasoning_content"})


@pytest.mark.parametrize("profile", ["qwq", "llama3"])
async def test_no_reasoning_is_restored_for_models_that_do_not_use_it(profile: str) -> None:
    assert await completed_members("vLLM", profile=profile) == set()


async def rules_of(
    services: Services,
    workflows: dict[str, Workflow],
    model: str,
    *tools: str,
    workflow: Workflow = NO_RULES,
) -> tuple[Workflow, tuple[RuleSkipped, ...]]:
    """Return the rules for a request, and the tools of skipped rules."""
    offered: list[JsonValue] = [{"type": "function", "function": {"name": name}} for name in tools]
    request = decode_request(json.dump({**HELLO, "model": model, "tools": offered}))
    request = structs.replace(request, workflow=workflow)
    service = services.find(model)
    known = await service.look_up(model)
    preparation = RequestPreparation(services, Policy(), workflows)
    return await preparation.rules_for(request, service, known)


QWEN = Description(("qwen", "qwen.gguf"))


@pytest.mark.parametrize(
    ("description", "workflows", "model", "rules"),
    [
        *((QWEN, {name: RULES}, "qwen", RULES) for name in ("default", "qwen.gguf", "my-agent")),
        *((QWEN, {"qwen": RULES}, name, RULES) for name in ("default", "gpt-4", "")),
        *((QWEN, {"my-agent": RULES}, name, RULES) for name in ("default", "gpt-4", "")),
        (QWEN, {"first": RULES, "second": OTHERS}, "second", OTHERS),
        (QWEN, {"first": RULES, "second": OTHERS}, "third", RULES),
    ],
)
async def test_the_workflow_of_a_single_model_applies_under_every_requested_name(
    description: Description, workflows: dict[str, Workflow], model: str, rules: Workflow
) -> None:
    rules_of_model, _ = await rules_of(
        single_service(description), workflows, model, "read", "ask", "finish"
    )
    assert rules_of_model == rules


@pytest.mark.parametrize(
    ("section", "model", "rules"),
    [
        ("large", "large", RULES),
        ("large", "coder", RULES),
        ("large", "small", NO_RULES),
        ("coder", "large", RULES),
        ("coder", "coder", RULES),
        ("coder", "small", NO_RULES),
    ],
)
async def test_the_workflow_of_one_of_several_services_applies_only_to_its_names(
    section: str, model: str, rules: Workflow
) -> None:
    backend = ScriptedBackend(description=Description(("same",)))
    large = OPTIONS.service(backend, name="large", aliases=("coder",))
    services = Services([OPTIONS.service(backend, name="small"), large])
    workflows = {"gone": OTHERS, section: RULES}
    assert (await rules_of(services, workflows, model, "read", "finish"))[0] == rules


@pytest.mark.parametrize(("model", "rules"), [("a", RULES), ("A", RULES), ("b", NO_RULES)])
async def test_a_workflow_applies_only_to_its_model_if_a_backend_has_several_models(
    model: str, rules: Workflow
) -> None:
    services = OPTIONS.services_for(Catalogue())
    assert (await rules_of(services, {"a": RULES}, model, "read", "finish"))[0] == rules


async def test_a_rule_for_a_tool_that_is_not_offered_is_skipped_and_reported() -> None:
    workflows = {"m": replace(RULES, prerequisites=(Prerequisite("edit", "read"),))}
    rules, skipped = await rules_of(single_service(), workflows, "m", "edit", "finish")
    assert (rules, skipped) == (Workflow((), (), ("finish",)), (RuleSkipped("read"),))


async def test_a_configured_workflow_is_ignored_if_the_client_sends_its_own_or_no_tools() -> None:
    no_rules = NO_RULES, ()
    assert (
        await rules_of(single_service(), {"m": RULES}, "m", "finish", workflow=OTHERS) == no_rules
    )
    assert await rules_of(single_service(), {"m": RULES}, "m") == no_rules


@pytest.mark.parametrize("is_summary", [False, True])
async def test_a_request_that_accepts_prose_has_no_missing_steps(*, is_summary: bool) -> None:
    tools: list[JsonValue] = [{"type": "function", "function": {"name": "look"}}]
    decoded = CHAT.decode(json.dump({**HELLO, "tools": tools}), Client())
    decoded = structs.replace(decoded, accepts_prose=is_summary)
    planned = await plan(decoded, workflows={"m": Workflow(("look",))})
    assert planned.plan.offer is not None
    assert planned.plan.offer.missing_steps == (() if is_summary else ("look",))


async def test_a_request_is_planned_for_its_model() -> None:
    planned = await plan(HELLO, single_service(Description(("m",), window=2048)))
    assert (planned.known.model, planned.known.window) == ("m", 2048)
    assert [message.text for message in planned.plan.messages] == ["Hi"]
    assert planned.mode is None
    assert planned.headers.keys() == {"x-request-id", "x-temper-prefix"}


@pytest.mark.parametrize(
    ("overrides", "options", "is_on", "effort"),
    [
        (Overrides(thinking=False), {}, False, ""),
        (Overrides(thinking=False), {"chat_template_kwargs": {"enable_thinking": True}}, True, ""),
        (Overrides(effort="low"), {}, None, "low"),
        (Overrides(effort="low"), {"reasoning_effort": "high"}, None, "high"),
        (Overrides(effort="low"), {"reasoning_effort": "none"}, False, ""),
        (
            Overrides(effort="low"),
            {"chat_template_kwargs": {"reasoning_effort": "high"}},
            None,
            "",
        ),
        (Overrides(effort="low"), {"thinking_budget_tokens": 9}, None, ""),
    ],
)
async def test_the_configured_reasoning_applies_unless_the_request_sets_it(
    overrides: Overrides, options: JsonObject, is_on: bool | None, effort: str
) -> None:
    services = single_service(options=ServiceOptions(overrides=overrides))
    thinking = (await plan({**HELLO, **options}, services)).plan.request.thinking
    assert (thinking.is_on, thinking.effort) == (is_on, effort)


IMAGE: JsonObject = {
    "type": "image",
    "source": {"type": "base64", "media_type": "image/png", "data": "AA=="},
}
NEW_IMAGE: list[JsonValue] = [{"role": "user", "content": [IMAGE]}]
IMAGE_OF_A_TOOL: list[JsonValue] = [
    {"role": "user", "content": "Look."},
    {
        "role": "assistant",
        "content": [{"type": "tool_use", "id": "t", "name": "read", "input": {}}],
    },
    {
        "role": "user",
        "content": [{"type": "tool_result", "tool_use_id": "t", "content": [IMAGE]}],
    },
]


@pytest.mark.parametrize(
    ("messages", "rejects_images", "result"),
    [
        (NEW_IMAGE, True, "refused"),
        (NEW_IMAGE, False, "sent"),
        (IMAGE_OF_A_TOOL, True, "hidden"),
        (IMAGE_OF_A_TOOL, False, "sent"),
    ],
)
async def test_without_vision_an_image_of_the_user_is_refused_and_an_image_of_a_tool_is_hidden(
    messages: list[JsonValue], *, rejects_images: bool, result: str
) -> None:
    body = json.dump({"model": "m", "max_tokens": 9, "messages": messages})
    decoded = MessagesDialect(STAMP).decode(body, Client())
    planning = plan(decoded, single_service(Description(("m",), rejects_images=rejects_images)))
    if result == "refused":
        with pytest.raises(InvalidRequest, match=r"^capability_rejected: image_block "):
            await planning
        return
    sent = b"".join(message.source for message in (await planning).plan.messages)
    assert (b"image_url" in sent) is (result == "sent")
    assert (b"An image that this model cannot read." in sent) is (result == "hidden")


async def test_x_temper_headers_override_the_settings() -> None:
    headers = {
        "x-temper-text-policy": "Accept",
        "x-temper-guardrails": "observe",
        "x-temper-compaction": " report ",
    }
    planned = await plan(HELLO, headers=headers)
    assert planned.plan.policy.text_policy is TextPolicy.ACCEPT
    assert planned.plan.policy.mode is Mode.OBSERVE
    assert planned.mode is FittingMode.REPORT
    for header in headers:
        with pytest.raises(InvalidRequest, match="use one of") as raised:
            await plan(HELLO, headers={header: "please"})
        assert raised.value.param == header


async def test_tuned_settings_apply_unless_a_header_overrides_them() -> None:
    class Tuning(TunedSettings):
        def of(self, known: KnownModel) -> Tuned:
            return tuned_changes(Settings(), {"guardrails": {"text_policy": "respond"}})

    services = single_service(Description(("m",)), ServiceOptions(tuned=Tuning()))
    policy = (await plan(HELLO, services)).plan.policy
    assert policy.text_policy is TextPolicy.RESPOND
    header = {"x-temper-text-policy": "accept"}
    policy = (await plan(HELLO, services, header)).plan.policy
    assert policy.text_policy is TextPolicy.ACCEPT
    (listed,) = await services.models()
    assert listed.details["tuned"] == "text_policy = respond"


@pytest.mark.parametrize(
    ("compaction", "mode"), [(None, None), (True, FittingMode.AUTO), (False, FittingMode.OFF)]
)
async def test_a_dialect_can_set_the_text_policy_and_compaction(
    compaction: bool | None, mode: FittingMode | None
) -> None:
    decoded = structs.replace(
        CHAT.decode(json.dump(HELLO), Client()),
        accepts_prose=True,
        compaction=compaction,
        facts=(Omitted("web_search"),),
    )
    planned = await plan(decoded)
    assert planned.plan.policy.text_policy is TextPolicy.ACCEPT
    assert planned.mode is mode
    assert planned.plan.facts == (Omitted("web_search"),)


def upstream_request(turn: Turn | None) -> UpstreamRequest:
    assert turn is not None
    request = turn.next_request()
    assert request is not None
    return request


async def test_a_prompt_that_the_backend_rejected_is_shortened_if_possible() -> None:
    preparation = RequestPreparation(single_service(), Policy())
    planned = await plan(LONG)
    complete = upstream_request(await preparation.fit(planned, lambda: True))
    assert len(complete.messages) == 61
    overflow = ContextOverflow("too long", 9000, 4096)
    shorter = upstream_request(await preparation.shorten(planned, lambda: True, overflow))
    assert len(b"".join(message.source for message in shorter.messages)) < 20_000
    for window in (100_000, 150):  # the prompt fits, or cannot be shortened enough
        overflow = ContextOverflow("too long", 100_001, window)
        assert await preparation.shorten(planned, lambda: True, overflow) is None


async def test_tokens_are_counted_by_the_backend_or_estimated() -> None:
    async def count(backend: ScriptedBackend) -> TokenCount:
        services = OPTIONS.services_for(backend)
        planned = await plan(HELLO, services)
        return await RequestPreparation(services, Policy()).count(planned)

    assert await count(ScriptedBackend(counts=[17])) == (17, False)
    tokens, is_estimated = await count(ScriptedBackend())
    assert 1 < tokens < 200
    assert is_estimated


@pytest.mark.parametrize(
    ("owner", "header", "priority"),
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
def test_the_priority_of_a_request_is_limited_by_its_key(
    owner: str, header: str, priority: str
) -> None:
    limits = {"batch": Priority.LOW, "boss": Priority.HIGH}
    preparation = RequestPreparation(single_service(), Policy(), priorities=limits)
    headers = {"x-temper-priority": header} if header else {}
    assert preparation.priority_of(Client(owner=owner, headers=headers)).value == priority
    with pytest.raises(InvalidRequest, match="use one of: high, normal, low"):
        preparation.priority_of(Client(headers={"x-temper-priority": "now"}))


@pytest.mark.parametrize("has_priorities", [True, False])
async def test_the_fields_priority_and_id_slot_are_removed_if_priorities_are_configured(
    *, has_priorities: bool
) -> None:
    limits = {"batch": Priority.LOW} if has_priorities else {}
    preparation = RequestPreparation(single_service(), Policy(), priorities=limits)
    fields = json.split_object(
        b'{"model":"m","prompt":"Hi","id_slot":0,"pri\\u006frity":-9,"seed":1}'
    )
    decoded = CHAT.decode(b'{"messages":[{"role":"user","content":"Hi"}]}', Client())
    request = structs.replace(decoded.request, model="m", fields=fields)
    resolved = await preparation.resolve(structs.replace(decoded, request=request))
    passage, _ = preparation.relay(PassthroughRequest("/v1/completions", "prompt", "m", fields))
    remaining = {"model", "prompt", "seed"} if has_priorities else set(fields)
    assert resolved.request.fields.keys() == passage.fields.keys() == remaining
    omitted = (Omitted("id_slot"), Omitted("priority")) if has_priorities else ()
    assert resolved.decoded.facts == omitted


@pytest.mark.parametrize(
    ("body", "is_slow"),
    [
        (b"{}" * 9_000, False),  # small, with many objects
        (b"a" * 2**20, False),  # large, but a single text
        (b"{}" * 2**17, True),
        (b"a" * (2**20 + 1), True),
    ],
)
def test_takes_long_is_true_for_huge_bodies_and_for_large_bodies_of_many_objects(
    body: bytes, is_slow: bool
) -> None:
    assert takes_long(body) is is_slow
    assert takes_long(body[:100], body[100:]) is is_slow
