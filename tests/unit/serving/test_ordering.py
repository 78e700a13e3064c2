import asyncio
from dataclasses import replace

import pytest

from proxy.api.app import ServerOptions
from proxy.backends.client import Description
from proxy.conversation.requests import Request
from proxy.conversation.workflows import NO_RULES, Prerequisite, Workflow
from proxy.dialects.openai_chat.decode import decode_request
from proxy.facts import RuleSkipped
from proxy.serving.ordering import Ordering
from proxy.serving.services import Services
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
        return await Ordering(services, rules).rules_for(asked, service, known)

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
