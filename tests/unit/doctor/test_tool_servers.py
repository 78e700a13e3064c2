import pytest

from proxy.doctor.finding import Status
from proxy.doctor.tool_servers import judge
from proxy.mcp.specification import ServerSpec
from proxy.serving.tool_inventory import InspectedServer
from tests.fakes.tool_servers import served


def server(name: str, *tools: str, state: str = "ready", problem: str = "") -> InspectedServer:
    offered = tuple(served(tool, name) for tool in tools)
    return InspectedServer(ServerSpec(name), state, problem=problem, offered=offered)


@pytest.mark.parametrize(
    ("servers", "window", "status", "words"),
    [
        ((server("a", "x"), server("b", "y")), 8192, Status.OK, "2 tools of 2 servers"),
        ((server("a", "x"),), None, Status.OK, "1 tools of 1 servers"),
        ((server("a", state="down", problem="ended"),), None, Status.FAIL, "a ended"),
        ((server("a", state="starting"),), None, Status.FAIL, "a is starting"),
        ((server("a", "x"), server("b", "x")), None, Status.WARN, "two servers have a tool 'x'"),
        ((server("a", *map(str, range(21))),), None, Status.WARN, "21 tools"),
        ((server("a", "x", "y"),), 100, Status.WARN, "2 tools"),
    ],
)
def test_tool_servers_are_judged(
    servers: tuple[InspectedServer, ...], window: int | None, status: Status, words: str
) -> None:
    found = judge(servers, window)
    assert found.status is status
    assert words in found.said


def test_what_is_odd_about_definitions_is_told() -> None:
    odd = InspectedServer(ServerSpec("a"), "ready", warnings=("has no tool 'x'",))
    assert judge((odd,), None).said == "a has no tool 'x'"
