from importlib.machinery import ModuleSpec

import pytest

from proxy.api.dialects import STAMP
from proxy.conversation.requests import Request
from proxy.conversation.tools import RequestedTools
from proxy.dialects.dialect import Client, Decoded
from proxy.dialects.openai_chat.dialect import chat_answering
from proxy.errors import InvalidConfiguration
from proxy.mcp import hosting
from proxy.mcp.hosting import hosting_of, specs_of
from proxy.mcp.specification import CallLimits
from proxy.observability.record import RequestRecord, ToolRecord
from proxy.observability.rows import ToolCalls, ToolServerCard
from proxy.serving.request_preparation import Resolved
from proxy.serving.services import ServiceOptions
from proxy.settings import Settings
from proxy.settings.tool_servers import Tools
from tests.fakes.backend import ScriptedBackend
from tests.fakes.tool_servers import PROGRAM, FakeSource, served

SETTINGS = Settings.model_validate(
    {
        "tools": {"offer": "always", "hosted": {"web_search": "a.find"}, "rounds": 3},
        "mcp": {
            "a": {
                "url": "http://h/mcp",
                "headers": {"x": "secret"},
                "tools": ["find"],
                "ask": ["find"],
            },
            "b": {"command": ["python", "-P", PROGRAM], "env": {"K": "secret"}, "prefix": "b_"},
        },
    }
)


def test_the_mcp_settings_are_converted_to_server_specs() -> None:
    first, second = specs_of(SETTINGS)
    assert (first.url, first.headers, first.tools) == ("http://h/mcp", {"x": "secret"}, ("find",))
    assert (second.command[-1], second.env, second.prefix) == (PROGRAM, {"K": "secret"}, "b_")
    assert (first.ask, second.ask) == (("find",), ())
    assert "secret" not in repr((first, second))


def test_the_error_without_the_mcp_sdk_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def find(_: str) -> ModuleSpec | None:
        return None

    monkeypatch.setattr(hosting, "find_spec", find)
    with pytest.raises(InvalidConfiguration, match=r"mcp\.a: .*pip install 'temper-proxy\[mcp\]'"):
        specs_of(SETTINGS)
    assert specs_of(Settings()) == ()


def test_hosting_takes_offer_rounds_and_hosted_tools_from_the_settings() -> None:
    source = FakeSource({"a": (served("find", "a"),)})
    hosting = hosting_of(SETTINGS.tools, source)
    assert hosting.offer.offering == "always"
    assert (hosting.rounds, hosting.narrates, [*hosting.offer.hosted]) == (
        3,
        False,
        ["web_search"],
    )
    assert (hosting.limits, hosting.offer.source) == (CallLimits(), source)
    request = Request("m", (), {})
    requests = (RequestedTools("tools.0", kind="web_search"),)
    decoded = Decoded(request, chat_answering(request, STAMP), requested_tools=requests)
    service = ServiceOptions().service(ScriptedBackend())
    offered, tools = hosting.add_tools(Resolved(decoded, Client(), request, service))
    assert tools == (served("find", "a"),)
    assert offered.request.tools == (served("find", "a").tool,)


def test_pending_confirmations_remain_after_a_reload_of_the_settings() -> None:
    hosting = hosting_of(SETTINGS.tools, FakeSource({}))
    changed = hosting_of(Tools(confirm_seconds=5), hosting.offer.source, hosting.confirmations)
    assert changed.confirmations is hosting.confirmations
    assert (hosting.confirm_seconds, changed.confirm_seconds) == (60.0, 5.0)


def test_each_tool_server_has_a_card_with_its_state_and_its_number_of_calls() -> None:
    tools = (served("find", "a"), served("drop", "a", needs_approval=True))
    hosting = hosting_of(SETTINGS.tools, FakeSource({"a": tools, "b": None}))
    calls = ToolCalls()
    failed = ToolRecord("a", "find", "1", 1, 0.0, 0.5, "failed", "tool_error")
    calls.count(RequestRecord(id="r", begun_at=0.0, seconds=1.0, status=200, tools=(failed,)))
    reachable, unreachable = hosting.cards(calls)
    assert reachable == ToolServerCard(
        name="a",
        state="ready",
        problem="",
        transport="pipe",
        protocol="version of a",
        tools=2,
        asking=1,
        calls=1,
        failures=1,
        refused=0,
        failure="find failed (tool_error).",
    )
    assert (
        unreachable.state,
        unreachable.problem,
        unreachable.tools,
        unreachable.asking,
        unreachable.calls,
    ) == (
        "waiting",
        "cannot be used: it is gone",
        None,
        None,
        0,
    )
