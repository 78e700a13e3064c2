from importlib.machinery import ModuleSpec

import pytest

from proxy.api.fronts import STAMP
from proxy.conversation.requests import Request
from proxy.conversation.tools import WantedTools
from proxy.dialects.front import Decoded
from proxy.dialects.openai_chat.front import ChatAnswering
from proxy.errors import InvalidConfiguration
from proxy.serving import tool_hosting
from proxy.serving.tool_hosting import hosting_of, specs_of
from proxy.settings import Settings
from proxy.toolservers.offer import Offering
from proxy.toolservers.specification import CallLimits
from tests.fakes.tool_servers import PROGRAM, FakeSource, served

SETTINGS = Settings.model_validate(
    {
        "tools": {"offer": "always", "hosted": {"web_search": "a.find"}, "rounds": 3},
        "mcp": {
            "a": {"url": "http://h/mcp", "headers": {"x": "secret"}, "tools": ["find"]},
            "b": {
                "command": ["python", "-P", PROGRAM],
                "env": {"K": "secret"},
                "prefix": "b_",
            },
        },
    }
)


def test_settings_become_what_servers_are() -> None:
    first, second = specs_of(SETTINGS)
    assert (first.url, first.headers, first.tools) == ("http://h/mcp", {"x": "secret"}, ("find",))
    assert (second.command[-1], second.env, second.prefix) == (PROGRAM, {"K": "secret"}, "b_")
    assert "secret" not in repr((first, second))


def test_a_missing_sdk_is_told_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    def find(_: str) -> ModuleSpec | None:
        return None

    monkeypatch.setattr(tool_hosting, "find_spec", find)
    with pytest.raises(InvalidConfiguration, match=r"mcp\.a: .*pip install 'temper-proxy\[mcp\]'"):
        specs_of(SETTINGS)
    assert specs_of(Settings()) == ()


def test_who_gets_which_tools_and_how_far_stands_in_the_settings() -> None:
    source = FakeSource({"a": (served("find", "a"),)})
    hosting = hosting_of(SETTINGS.tools, source)
    assert hosting.offer.policy.offering is Offering.ALWAYS
    assert (hosting.rounds, hosting.narrates, [*hosting.hosted]) == (3, False, ["web_search"])
    assert (hosting.limits, hosting.source) == (CallLimits(), source)
    request = Request("m", (), {})
    wanted = (WantedTools("tools.0", kind="web_search"),)
    decoded = Decoded(request, ChatAnswering(request, STAMP), wanted=wanted)
    assert hosting.tools_for(decoded, "") == (served("find", "a"),)
