"""Order rules of a client, and of the operator for every name of a model, over HTTP."""

import pytest

from proxy.api.app import ServerOptions
from proxy.api.assembly import server_options_of
from proxy.conversation.json import JsonObject
from proxy.settings import load_settings
from tests.fakes import sse
from tests.fakes.running_proxy import TOOLS, request, temper

WEATHER = sse.calls("get_weather", '{"city": "Paris"}')
TIME = sse.calls("get_time", "{}")


ALONE: JsonObject = {"model_alias": "id-in-the-list", "total_slots": 1}


def options_with_rules() -> ServerOptions:
    rules = {"required_steps": ["get_time"], "terminal_tools": ["get_weather"]}
    return server_options_of(load_settings(None, {"workflows": {"default": rules}}))


@pytest.mark.parametrize("model", ["default", "id-in-the-list", "gpt-4"])
async def test_the_operators_workflow_applies_to_every_name_of_the_model(
    *, model: str, stream: bool
) -> None:
    async with temper(WEATHER, TIME, serving=options_with_rules()) as proxy:
        proxy.backend.properties = ALONE
        answer = await proxy.ask(request(model=model), stream=stream)
    assert answer.called == [("get_time", {})]
    assert answer.report["outcome"] == "retried"


async def test_a_required_step_whose_tool_is_not_in_the_request_is_skipped(*, stream: bool) -> None:
    async with temper(WEATHER, serving=options_with_rules()) as proxy:
        proxy.backend.properties = ALONE
        answer = await proxy.ask(request(tools=TOOLS[:1]), stream=stream)
    assert answer.called == [("get_weather", {"city": "Paris"})]
    assert answer.report["repairs"] == "ruleskipped=1"


async def test_a_client_workflow_with_an_unknown_tool_is_a_400(*, stream: bool) -> None:
    rules: JsonObject = {"required_steps": ["gone"], "terminal_tools": ["get_weather"]}
    async with temper() as proxy:
        answer = await proxy.ask(request(temper={"workflow": rules}), stream=stream)
    assert answer.status == 400
    assert answer.error is not None
    assert answer.error["param"] == "temper.workflow.required_steps.0"
