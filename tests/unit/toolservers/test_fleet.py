import asyncio
import os
from collections.abc import Coroutine
from pathlib import Path

import pytest

from proxy.conversation.tools import ToolCall
from proxy.processes.restarts import RestartPolicy
from proxy.rounds.executor import RoundContext
from proxy.rounds.outcomes import Status
from proxy.toolservers.execution import OwnedTools
from proxy.toolservers.fleet import Fleet, open_fleet
from proxy.toolservers.server import Patience
from proxy.toolservers.specification import ServerSpec
from tests.fakes.tool_server_over_http import SECRET, tool_server_over_http
from tests.fakes.tool_servers import PATIENCE, program
from tests.patience import PATIENCE_SECONDS


def run(work: Coroutine[None, None, None]) -> None:
    async def with_patience() -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await work

    asyncio.run(with_patience())


def all_tools(fleet: Fleet) -> OwnedTools:
    return OwnedTools(
        fleet, tuple(one for name in fleet.names for one in fleet.tools_of(name) or ())
    )


def call(name: str, arguments: str = "{}") -> ToolCall:
    return ToolCall(name, name, arguments)


def test_a_program_and_an_address_answer_one_reply_together() -> None:
    async def work() -> None:
        async with tool_server_over_http() as server:
            specs = (
                program(tools=("echo",), prefix="p_"),
                ServerSpec("adder", server.url, {"authorization": SECRET}, tools=("add",)),
            )
            async with open_fleet(specs, PATIENCE) as fleet:
                await fleet.settled(PATIENCE_SECONDS)
                assert fleet.names == ("fake", "adder")
                calls = [call("p_echo", '{"text":"hi"}'), call("add", '{"a":1,"b":2}')]
                outcomes = await all_tools(fleet).execute(calls, RoundContext())
                assert [one.text for one in outcomes] == ["hi", "3"]
                assert fleet.protocol_of("fake") == ("pipe", "2025-11-25")
                assert fleet.protocol_of("adder")[0] == "tcp"
                assert [fleet.is_ready(name) for name in fleet.names] == [True, True]
                assert fleet.condition_of("fake") == ("ready", "")

    run(work())


def test_a_caller_who_leaves_cancels_a_call_over_http() -> None:
    async def work() -> None:
        async with tool_server_over_http() as server:
            spec = ServerSpec("adder", server.url, {"authorization": SECRET}, tools=("*",))
            async with open_fleet((spec,), PATIENCE) as fleet:
                await fleet.settled(PATIENCE_SECONDS)
                calling = all_tools(fleet).execute([call("wait")], RoundContext())
                waiting = asyncio.create_task(calling)
                await server.waiting.wait()
                waiting.cancel()
                await server.cancelled.wait()

    run(work())


def test_an_address_that_fails_fails_the_call_and_comes_back() -> None:
    async def work() -> None:
        async with tool_server_over_http() as server:
            spec = ServerSpec("adder", server.url, {"authorization": SECRET}, tools=("*",))
            async with open_fleet((spec,), PATIENCE) as fleet:
                await fleet.settled(PATIENCE_SECONDS)
                tools, adding = all_tools(fleet), [call("add", '{"a":1,"b":2}')]
                server.is_broken = True
                (broken,) = await tools.execute(adding, RoundContext())
                assert broken.status in (Status.FAILED, Status.LOST)
                server.is_broken = False
                (added,) = await tools.execute(adding, RoundContext())
                assert (added.text, added.status) == ("3", Status.DONE)

    run(work())


def test_an_address_that_goes_loses_its_calls_and_is_found_again() -> None:
    async def work() -> None:
        async with tool_server_over_http() as server:
            port = int(server.url.split(":")[2].split("/")[0])
            spec = ServerSpec("adder", server.url, {"authorization": SECRET}, tools=("*",))
            fleet = Fleet((spec,), PATIENCE)
            fleet.servers[0].start()
            await fleet.settled(PATIENCE_SECONDS)
            tools = all_tools(fleet)
            waiting = asyncio.create_task(tools.execute([call("wait")], RoundContext()))
            await server.waiting.wait()
        (lost,) = await waiting
        assert lost.status in (Status.LOST, Status.FAILED)
        async with tool_server_over_http(port):
            texts = {""}
            while "3" not in texts:  # it may be found missing first
                (added,) = await tools.execute([call("add", '{"a":1,"b":2}')], RoundContext())
                texts.add(added.text)
            await fleet.close()

    run(work())


def test_servers_are_closed_all_at_once_and_stubborn_ones_as_well(tmp_path: Path) -> None:
    async def work() -> None:
        logs = [tmp_path / f"{number}" for number in range(3)]
        specs = [
            program("stubborn", name=log.name, env={"LOG": str(log)}, prefix=f"{log.name}_")
            for log in logs
        ]
        async with open_fleet(specs, PATIENCE) as fleet:
            await fleet.settled(PATIENCE_SECONDS)
        for log in logs:
            started, ended = log.read_text().splitlines()
            assert ended == "input ended"
            with pytest.raises(ProcessLookupError):
                os.kill(int(started.split()[1]), 0)

    run(work())


def test_what_is_not_there_holds_nobody_up() -> None:
    async def work() -> None:
        patience = Patience(call=0.0, restarts=RestartPolicy(first_delay=1000))
        specs = (program("mute"), ServerSpec("gone", "http://127.0.0.1:1/mcp", tools=("*",)))
        async with open_fleet(specs, patience) as fleet:
            await fleet.settled(0.01)
            assert [fleet.tools_of(name) for name in fleet.names] == [None, None]
            assert not any(map(fleet.is_ready, fleet.names))

    run(work())
