import asyncio
import sys

import pytest

from proxy.errors import InvalidConfiguration
from proxy.mcp.definitions import digest_of
from proxy.mcp.inspection import call_once, inspect_servers
from proxy.settings import Settings
from tests.fakes.tool_servers import PROGRAM


def settings(*options: str, tools: tuple[str, ...] = ("echo", "gone")) -> Settings:
    command = [sys.executable, "-P", PROGRAM, *options]
    return Settings.model_validate({"mcp": {"fake": {"command": command, "tools": tools}}})


def test_inspect_servers_lists_all_definitions_and_the_offered_tools() -> None:
    (listing,) = asyncio.run(inspect_servers(settings()))
    assert (listing.state, listing.protocol, listing.problem) == ("ready", "2025-11-25", "")
    assert [tool.tool.name for tool in listing.offered] == ["echo"]
    assert listing.warnings == ("has no tool 'gone'",)
    assert listing.digest == digest_of(
        [tool for tool in listing.definitions if tool.name == "echo"]
    )
    document = listing.document()
    assert document["server"] == "fake"
    assert document["digest"] == listing.digest


def test_the_digest_covers_all_tools_even_if_none_is_offered() -> None:
    (listing,) = asyncio.run(inspect_servers(settings(tools=())))
    assert listing.digest == digest_of(listing.definitions)


def test_call_once_fails_with_the_reason_if_the_program_cannot_run() -> None:
    broken = Settings.model_validate({"mcp": {"fake": {"command": ["/no/such/program"]}}})
    with pytest.raises(InvalidConfiguration, match="cannot run /no/such/program"):
        asyncio.run(call_once(broken, "fake.echo", {}))
    with pytest.raises(InvalidConfiguration, match="available: none"):
        asyncio.run(call_once(Settings(), "fake.echo", {}))


def test_call_once_can_call_a_tool_that_is_not_offered() -> None:
    assert asyncio.run(call_once(settings(), "fake.structured", {})) == ('{"degrees":21}', True)
