import asyncio
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from proxy.conversation.tools import ToolCall
from proxy.mcp.execution import OperatorTools
from proxy.mcp.fleet import ToolServerFleet, open_fleet
from proxy.mcp.server import ServerTimeouts
from proxy.mcp.specification import WITHDRAWN, ServerSpec
from proxy.processes.restarts import RestartPolicy, RestartState
from proxy.tools.executor import RoundContext, Status
from tests.fakes.tool_server_over_http import SECRET, tool_server_over_http
from tests.fakes.tool_servers import LONG_TIMEOUTS, PROGRAM, program
from tests.timeouts import TIMEOUT_SECONDS


def all_tools(fleet: ToolServerFleet) -> OperatorTools:
    return OperatorTools(
        fleet, tuple(tool for name in fleet.names for tool in fleet.tools_of(name) or ())
    )


def call(name: str, arguments: str = "{}") -> ToolCall:
    return ToolCall(name, name, arguments)


async def test_calls_of_one_reply_can_go_to_a_program_and_to_an_http_server() -> None:
    async with tool_server_over_http() as server:
        specs = (
            program(tools=("echo",), prefix="p_"),
            ServerSpec("adder", server.url, {"authorization": SECRET}, tools=("add",)),
        )
        async with open_fleet(specs, LONG_TIMEOUTS) as fleet:
            await fleet.wait_settled(TIMEOUT_SECONDS)
            assert fleet.names == ("fake", "adder")
            calls = [call("p_echo", '{"text":"hi"}'), call("add", '{"a":1,"b":2}')]
            outcomes = await all_tools(fleet).execute(calls, RoundContext())
            assert [outcome.text for outcome in outcomes] == ["hi", "3"]
            assert fleet.protocol_of("fake") == ("pipe", "2025-11-25")
            assert fleet.protocol_of("adder")[0] == "tcp"
            assert [fleet.is_ready(name) for name in fleet.names] == [True, True]
            assert fleet.condition_of("fake") == ("ready", "")


@pytest.mark.fault("F69")
async def test_canceling_a_call_cancels_it_at_the_http_server() -> None:
    async with tool_server_over_http() as server:
        spec = ServerSpec("adder", server.url, {"authorization": SECRET}, tools=("*",))
        async with open_fleet((spec,), LONG_TIMEOUTS) as fleet:
            await fleet.wait_settled(TIMEOUT_SECONDS)
            calling = all_tools(fleet).execute([call("wait")], RoundContext())
            waiting = asyncio.create_task(calling)
            await server.waiting.wait()
            waiting.cancel()
            await server.cancelled.wait()


async def test_a_call_fails_while_its_http_server_is_faulty_and_succeeds_afterwards() -> None:
    async with tool_server_over_http() as server:
        spec = ServerSpec("adder", server.url, {"authorization": SECRET}, tools=("*",))
        async with open_fleet((spec,), LONG_TIMEOUTS) as fleet:
            await fleet.wait_settled(TIMEOUT_SECONDS)
            tools, adding = all_tools(fleet), [call("add", '{"a":1,"b":2}')]
            server.is_broken = True
            (broken,) = await tools.execute(adding, RoundContext())
            assert broken.status in (Status.FAILED, Status.LOST)
            server.is_broken = False
            (added,) = await tools.execute(adding, RoundContext())
            assert (added.text, added.status) == ("3", Status.DONE)


async def test_a_call_fails_if_its_http_server_stops_and_later_calls_use_its_successor() -> None:
    async with tool_server_over_http() as server:
        spec = ServerSpec("adder", server.url, {"authorization": SECRET}, tools=("*",))
        fleet = ToolServerFleet(LONG_TIMEOUTS)
        fleet.renew((spec,))
        await fleet.wait_settled(TIMEOUT_SECONDS)
        tools = all_tools(fleet)
        waiting = asyncio.create_task(tools.execute([call("wait")], RoundContext()))
        await server.waiting.wait()
    (lost,) = await waiting
    assert lost.status in (Status.LOST, Status.FAILED)
    async with tool_server_over_http(server.address):
        texts = {""}
        while "3" not in texts:  # until the fleet has reconnected, calls may fail
            (added,) = await tools.execute([call("add", '{"a":1,"b":2}')], RoundContext())
            texts.add(added.text)
        await fleet.close()


async def test_closing_a_fleet_kills_programs_that_ignore_sigterm(tmp_path: Path) -> None:
    logs = [tmp_path / f"{number}" for number in range(3)]
    specs = [
        program("stubborn", name=log.name, env={"LOG": str(log)}, prefix=f"{log.name}_")
        for log in logs
    ]
    async with open_fleet(specs, LONG_TIMEOUTS) as fleet:
        await fleet.wait_settled(TIMEOUT_SECONDS)
    for log in logs:
        started, ended = log.read_text().splitlines()
        assert ended == "input ended"
        with pytest.raises(ProcessLookupError):
            os.kill(int(started.split()[1]), 0)


async def test_an_unreachable_server_delays_neither_start_nor_close_of_a_fleet() -> None:
    timeouts = ServerTimeouts(call=0.0, restarts=RestartPolicy(first_delay=1000))
    specs = (program("mute"), ServerSpec("gone", "http://127.0.0.1:1/mcp", tools=("*",)))
    async with open_fleet(specs, timeouts) as fleet:
        await fleet.wait_settled(0.01)
        assert [fleet.tools_of(name) for name in fleet.names] == [None, None]
        assert not any(map(fleet.is_ready, fleet.names))


async def test_a_reload_restarts_only_changed_servers_and_stops_removed_servers() -> None:
    stays = program(name="stays", prefix="s_", tools=("pid",))
    old = program(name="other", prefix="o_", tools=("pid",))
    removed, new = program(name="gone", prefix="g_", tools=("pid",)), program(tools=("pid",))
    async with open_fleet((stays, old, removed), LONG_TIMEOUTS) as fleet:
        await fleet.wait_settled(TIMEOUT_SECONDS)
        before = all_tools(fleet)
        first = await pids(before)
        fleet.renew((new, replace(old, env={"OWN": "1"}), stays))
        await fleet.wait_settled(TIMEOUT_SECONDS)
        assert fleet.names == ("fake", "other", "stays")
        second = await pids(all_tools(fleet))
        assert second["s_pid"] == first["s_pid"]
        assert second["o_pid"] != first["o_pid"]
        assert {*second} == {"pid", "o_pid", "s_pid"}
        for name in ("o_pid", "g_pid"):
            await until_gone(first[name])
        # a request from before the reload may still call the removed server, and gets an error
        (called,) = await before.execute([call("g_pid")], RoundContext())
        assert (called.text, fleet.protocol_of("gone")) == (WITHDRAWN, ("", ""))
    for pid in second.values():
        assert not is_alive(pid)


async def test_a_reload_starts_a_server_that_was_down(tmp_path: Path) -> None:
    late_program, source = tmp_path / "program.py", Path(PROGRAM).read_text()  # noqa: ASYNC240 - a small file
    spec = replace(program(tools=("pid",)), command=(sys.executable, "-P", str(late_program)))
    async with open_fleet((spec,), LONG_TIMEOUTS) as fleet:
        await fleet.wait_settled(TIMEOUT_SECONDS)
        assert fleet.servers[0].state is RestartState.DOWN
        late_program.write_text(source)
        fleet.renew((spec,))
        await fleet.wait_settled(TIMEOUT_SECONDS)
        assert await pids(all_tools(fleet))


async def test_a_removed_server_stops_only_after_its_running_calls() -> None:
    async with tool_server_over_http() as server:
        spec = ServerSpec("adder", server.url, {"authorization": SECRET}, tools=("*",))
        async with open_fleet((spec,), LONG_TIMEOUTS) as fleet:
            await fleet.wait_settled(TIMEOUT_SECONDS)
            tools, retiring = all_tools(fleet), fleet.servers[0]
            waiting = asyncio.create_task(tools.execute([call("wait")], RoundContext()))
            await server.waiting.wait()
            fleet.renew(())
            assert (fleet.names, retiring.state) == ((), RestartState.READY)
            waiting.cancel()
            await server.cancelled.wait()
            await retiring.wait_closed()
            assert retiring.state is RestartState.STOPPED


async def test_a_call_of_a_tool_whose_definition_changed_in_a_reload_is_refused(
    tmp_path: Path,
) -> None:
    definition = tmp_path / "definition"
    definition.write_text("Repeats it.")
    spec = program(env={"DEFINITION": str(definition)}, tools=("echo",))
    async with open_fleet((spec,), LONG_TIMEOUTS) as fleet:
        await fleet.wait_settled(TIMEOUT_SECONDS)
        before = all_tools(fleet)
        definition.write_text("Sends it to everybody.")
        fleet.renew((replace(spec, tools=("echo", "pid")),))
        (refused,) = await before.execute([call("echo")], RoundContext())
        assert refused.text == WITHDRAWN
        (done,) = await all_tools(fleet).execute([call("echo")], RoundContext())
        assert done.status is Status.DONE


async def pids(tools: OperatorTools) -> dict[str, int]:
    """Call tools that return the process id of their server; return the ids by tool name."""
    calls = [call(spec.name) for spec in tools.specs()]
    outcomes = await tools.execute(calls, RoundContext())
    return {outcome.call.name: int(outcome.text) for outcome in outcomes}


async def until_gone(pid: int) -> None:
    while is_alive(pid):  # noqa: ASYNC110 - there is no event to wait for
        await asyncio.sleep(0.01)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
