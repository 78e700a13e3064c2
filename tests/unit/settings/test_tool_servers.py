"""Settings of tool servers that are valid individually, but contradict each other."""

from pathlib import Path

import pytest

from proxy.settings.sections import Server, Ui
from proxy.settings.tool_servers import (
    Tools,
    ToolServer,
    find_approval_conflicts,
    tool_server_contradictions,
)

URL: dict[str, object] = {"url": "http://127.0.0.1:1/mcp"}
COMMAND: dict[str, object] = {"command": ["uvx", "mcp-server-time"]}


def problems_of(
    servers: dict[str, dict[str, object]],
    tools: dict[str, object] | None = None,
    workers: int = 1,
    *,
    has_key_file: bool = False,
) -> list[tuple[str, str]]:
    made = {name: ToolServer.model_validate(server) for name, server in servers.items()}
    server = Server(workers=workers, api_keys_file=Path("keys") if has_key_file else None)
    wrong = tool_server_contradictions(Tools.model_validate(tools or {}), made, server)
    return [(names[0], problem) for names, problem in wrong]


def test_a_tool_server_with_a_url_and_a_tool_server_with_a_command_can_be_combined() -> None:
    servers = {
        "a": {**URL, "tools": ["search"]},
        "b": {**COMMAND, "tools": ["*"], "env": {"A": ""}},
    }
    tools: dict[str, object] = {"hosted": {"web_search": "a.search", "time": "b.now"}}
    assert problems_of(servers, tools) == []
    assert problems_of({"a": URL}, workers=4) == []
    assert problems_of({"a": URL}, {"owners": ["me"]}, has_key_file=True) == []


@pytest.mark.parametrize(
    ("server", "setting", "message"),
    [
        ({}, "mcp.a.url", "or a program with mcp.a.command"),
        ({**URL, **COMMAND}, "mcp.a.command", "remove one of the two"),
        ({**COMMAND, "headers": {"x": "y"}}, "mcp.a.headers", "requires mcp.a.url"),
        ({**URL, "env": {"A": "b"}}, "mcp.a.env", "requires mcp.a.command"),
        ({**URL, "cwd": "/"}, "mcp.a.cwd", "requires mcp.a.command"),
        ({**URL, "tools": ["*", "x"]}, "mcp.a.tools", "remove the names"),
    ],
)
def test_the_error_for_contradictory_settings_of_a_tool_server_names_the_setting(
    server: dict[str, object], setting: str, message: str
) -> None:
    ((blamed, problem),) = problems_of({"a": server})
    assert blamed == setting
    assert message in problem


@pytest.mark.parametrize("name", ["", "a b", "-a", "a.b", "a" * 65])
def test_a_tool_server_name_with_invalid_characters_is_refused(name: str) -> None:
    ((blamed, problem),) = problems_of({name: URL})
    assert blamed == f"mcp.{name}"
    assert "letters, digits" in problem


def test_a_tool_server_with_a_command_requires_a_single_worker() -> None:
    ((blamed, problem),) = problems_of({"a": COMMAND}, workers=2)
    assert (blamed, "must be 1" in problem) == ("server.workers", True)


def test_a_tool_of_the_same_name_on_two_servers_is_refused_without_a_prefix() -> None:
    ((blamed, problem),) = problems_of(
        {"a": {**URL, "tools": ["get"]}, "b": {**URL, "tools": ["get"]}}
    )
    assert blamed == "mcp.b.tools"
    assert "mcp.a also has a tool 'get'; set a prefix" in problem
    assert (
        problems_of(
            {"a": {**URL, "tools": ["get"]}, "b": {**URL, "tools": ["get"], "prefix": "b_"}}
        )
        == []
    )
    assert problems_of({"a": {**URL, "tools": ["*"]}, "b": {**URL, "tools": ["*"]}}) == []


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("search", "does not have the form SERVER.TOOL"),
        ("serch.find", "did you mean 'search'?"),
        ("x.find", "section mcp.x does not exist"),
        ("search.other", "not in mcp.search.tools"),
    ],
)
def test_a_hosted_tool_that_names_no_listed_tool_is_refused(target: str, message: str) -> None:
    servers = {"search": {**URL, "tools": ["find"]}}
    ((blamed, problem),) = problems_of(servers, {"hosted": {"web_search": target}})
    assert blamed == "tools.hosted"
    assert message in problem


def test_tools_owners_without_api_keys_file_are_refused() -> None:
    ((blamed, _),) = problems_of({"a": URL}, {"owners": ["me"]})
    assert blamed == "tools.owners"


def approval_conflicts(
    server: dict[str, object] | None = None, ui: dict[str, object] | None = None, **more: object
) -> list[tuple[tuple[str, ...], str]]:
    servers = {
        "a": ToolServer.model_validate({**URL, "tools": ["get"]}),
        "b": ToolServer.model_validate({**URL, "tools": ["put"], "ask": ["put"], **more}),
    }
    asking = Server.model_validate(server or {})
    return [*find_approval_conflicts(servers, asking, Ui.model_validate(ui or {}))]


def test_tools_that_need_approval_are_accepted_with_one_worker_and_a_dashboard_key() -> None:
    assert approval_conflicts() == []
    assert approval_conflicts({"api_key": "k"}) == []
    assert approval_conflicts({"api_keys_file": "keys"}, {"owners": ["anna"]}) == []
    assert approval_conflicts({"workers": 4}, {"enabled": False}, ask=[]) == []


@pytest.mark.parametrize(
    ("server", "ui", "names", "message"),
    [
        ({"workers": 2}, {}, ("server.workers", "mcp.b.ask"), "must be 1 with mcp.b.ask"),
        ({}, {"enabled": False}, ("mcp.b.ask", "ui.enabled"), "requires ui.enabled = true"),
        ({}, {"read_only": True}, ("mcp.b.ask", "ui.read_only"), "requires ui.read_only = false"),
        ({"api_keys_file": "k"}, {}, ("mcp.b.ask", "ui.owners"), "server.api_key or ui.owners"),
    ],
)
def test_tools_that_need_approval_are_refused_if_the_dashboard_cannot_approve_them(
    server: dict[str, object], ui: dict[str, object], names: tuple[str, ...], message: str
) -> None:
    ((blamed, problem),) = approval_conflicts(server, ui)
    assert blamed == names
    assert message in problem


def test_a_tool_in_ask_that_is_not_in_tools_is_refused() -> None:
    for ask in (["get"], ["*"], []):
        assert problems_of({"a": {**URL, "tools": ["get"], "ask": ask}}) == []
    assert problems_of({"a": {**URL, "tools": ["*"], "ask": ["get"]}}) == []
    ((blamed, problem),) = problems_of({"a": {**URL, "tools": ["get"], "ask": ["put"]}})
    assert (blamed, problem) == (
        "mcp.a.ask",
        "'put' is not in mcp.a.tools; add it there",
    )
    ((blamed, problem),) = problems_of({"a": {**URL, "ask": ["*"]}})
    assert (blamed, "add it there" in problem) == ("mcp.a.ask", True)
    ((blamed, problem),) = problems_of({"a": {**URL, "tools": ["*"], "ask": ["*", "x"]}})
    assert (blamed, "remove the names" in problem) == ("mcp.a.ask", True)
