"""Tool servers across reloads of the settings, with real programs."""

import asyncio
import os
import subprocess
import sys
from contextlib import aclosing
from pathlib import Path

from proxy.mcp.lazy import LazyToolServers
from proxy.settings import Settings
from tests.fakes.tool_servers import PROGRAM, until
from tests.timeouts import TIMEOUT_SECONDS

UNUSED = """
import asyncio, sys
from contextlib import aclosing
from proxy.api.app import ServerOptions, create_app
from proxy.mcp.lazy import LazyToolServers
from proxy.conversation import json
from proxy.conversation.replies import ReplyFinished, TextDelta
from proxy.settings import Settings
from tests.fakes.asgi import HandMadeClient
from tests.fakes.backend import ScriptedBackend

async def main():
    backend = ScriptedBackend([[TextDelta("Hello"), ReplyFinished("stop")]])
    body = json.dump({"model": "m", "messages": [{"role": "user", "content": "Hi"}]})
    client = HandMadeClient(body, "POST", "/v1/chat/completions")
    async with aclosing(LazyToolServers()) as late:
        tools = late.apply(Settings())
        app = create_app(ServerOptions().services_for(backend), ServerOptions(), tools=tools)
        await client.call(app)
    assert client.status == 200, client.answer
    sdk = ("mcp", "httpx2")
    own = ("proxy.mcp.", "proxy.api.tool", "proxy.tools.runner", "proxy.tools.function")
    found = {name for name in sys.modules if name.startswith((*sdk, *own))}
    print(sorted(found - {"proxy.mcp.lazy"}))

asyncio.run(main())
"""


def test_without_tool_servers_a_chat_request_imports_no_mcp_modules() -> None:
    root = str(Path(__file__).parents[3])
    answered = subprocess.run(
        [sys.executable, "-c", UNUSED],
        env={**os.environ, "PYTHONPATH": root},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (answered.stdout, answered.returncode) == ("[]\n", 0), answered.stderr


def settings_of(rounds: int = 10, **servers: dict[str, object]) -> Settings:
    return Settings.model_validate({"tools": {"rounds": rounds}, "mcp": servers})


def logging_program(log: Path, prefix: str = "") -> dict[str, object]:
    """Return the settings of a program that writes each of its starts to a log."""
    command = [sys.executable, "-P", PROGRAM]
    return {"command": command, "env": {"LOG": str(log)}, "tools": ["echo"], "prefix": prefix}


async def test_a_reload_starts_new_servers_and_stops_removed_servers(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    async with asyncio.timeout(TIMEOUT_SECONDS), aclosing(LazyToolServers()) as tools:
        assert tools.apply(settings_of()) is None
        hosting = tools.apply(settings_of(a=logging_program(first)))
        assert hosting is not None
        assert (hosting.offer.source.names, hosting.offer.source.tools_of("a")) == (("a",), None)
        before = hosting.confirmations
        hosting = tools.apply(
            settings_of(3, a=logging_program(first), b=logging_program(second, "b_"))
        )
        assert hosting is not None
        assert hosting.confirmations is before
        assert (hosting.offer.source.names, hosting.rounds) == (("a", "b"), 3)
        hosting = tools.apply(settings_of(b=logging_program(second, "b_")))
        assert hosting is not None
        while hosting.offer.source.tools_of("b") is None:  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0.01)
        assert tools.apply(settings_of()) is None
        await until(second, "input ended")
    assert second.read_text().count("started") == 1


async def test_the_tool_recall_is_offered_only_if_compaction_and_guardrails_are_on() -> None:
    def recalls(**others: dict[str, object]) -> bool:
        settings: dict[str, dict[str, object]] = {"context": {"recall": True}}
        hosting = tools.apply(Settings.model_validate({**settings, **others}))
        return hosting is not None and hosting.recalls

    async with aclosing(LazyToolServers()) as tools:
        assert recalls()
        assert not recalls(context={})
        assert not recalls(context={"recall": True, "compaction": "report"})
        assert not recalls(guardrails={"mode": "observe"})
