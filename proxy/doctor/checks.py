"""Runs all checks in order. If a vital check fails, the remaining checks are skipped."""

import asyncio
import sys
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass
from importlib.metadata import Distribution
from typing import TypeAlias

import httpx

from proxy import DISTRIBUTION
from proxy.api.app import create_app
from proxy.api.assembly import server_options_of
from proxy.api.server import listen
from proxy.context.rough_tokens import count_rough_tokens
from proxy.doctor import exchanges, server
from proxy.doctor.clients import Client
from proxy.doctor.target import CheckResult, Finding, Target, fail, ok, skip, warn
from proxy.errors import InvalidConfiguration, ProcessFailed, TemperError
from proxy.hardware.fit import Memory
from proxy.hardware.snapshot import detect_hardware
from proxy.hardware.summary import amount
from proxy.mcp.inspection import InspectedServer, inspect_servers
from proxy.processes.start_progress import StartProgress
from proxy.processes.supervisor import Supervisor
from proxy.serving.managed_server import alias_of, choose_window
from proxy.serving.opening import address_of, open_services, open_shared_server, settings_of
from proxy.settings import Settings, is_loopback
from proxy.systems import open_file_limit


def judge_descriptors(limit: int, streams: int) -> Finding:
    """Compare the limit of open files with the number of streams; a negative one means no limit."""
    # 64 for Temper itself; each stream needs a socket to the client and a socket to the backend
    needed = 64 + 2 * streams
    if limit < 0 or limit >= needed:
        return ok(f"{'unlimited' if limit < 0 else limit} open files are allowed")
    return warn(
        f"only {limit} open files are allowed; a full queue needs {needed}",
        f"run ulimit -n {needed}, or lower server.max_waiting",
    )


def judge_memory(memory: Memory) -> Finding:
    """Check the free main memory. GPU memory is only listed: a loaded model may fill it."""
    parts = [f"{amount(memory.free)} of {amount(memory.total)} of main memory"]
    parts += [
        f"{amount(device.free)} of {amount(device.total)} of {device.name}"
        for device in memory.devices
    ]
    summary = f"{' and '.join(parts)} {'is' if len(parts) == 1 else 'are'} free"
    if memory.free < 1 << 30:
        return warn(summary, "stop other programs, or use a smaller model or window")
    return ok(summary)


def check_address(settings: Settings) -> Finding:
    """Report the address of Temper, and check the port for Ollama clients."""
    host, port = settings.server.host, settings.server.ollama_port
    # an address other than loopback requires a key, otherwise the settings would be invalid
    access = (
        ", reachable from this machine only" if is_loopback(host) else ", an API key is required"
    )
    summary = f"Temper listens on {host}{access}"
    if not port:
        return ok(summary)
    try:
        listen(host, port).close()
    except InvalidConfiguration:
        return warn(
            f"port {port} (server.ollama_port) is already in use",
            "stop the Ollama that uses it, or set server.ollama_port to 0",
        )
    return ok(f"{summary}, and on port {port} for Ollama clients")


def find_distributions(package: str, folders: list[str]) -> Iterator[str]:
    """Search folders for the distributions that contain a package, and yield their names.

    `importlib.metadata.packages_distributions` would take seconds, because it reads all file lists.
    """
    for distribution in Distribution.discover(path=folders):
        declared = (distribution.read_text("top_level.txt") or "").split()
        if package in declared or f"\n{package}/" in f"\n{distribution.read_text('RECORD')}":
            yield distribution.metadata["Name"]


def judge_package_name(owners: Iterable[str]) -> Finding:
    """Check that only Temper installs a package `proxy`: two such packages would conflict."""
    others = sorted({*owners} - {DISTRIBUTION})
    if not others:
        return ok("no other distribution installs a package `proxy`")
    problem = f"{others[0]} also installs a package `proxy`, which conflicts with Temper"
    return warn(problem, "install Temper in a separate environment: pipx install temper-proxy")


async def tool_servers(target: Target) -> Finding:
    """Start each tool server, and compare the size of its tools with the window."""
    return judge_tool_servers(await inspect_servers(target.settings), target.known.window)


def judge_tool_servers(servers: tuple[InspectedServer, ...], window: int | None) -> Finding:
    """Check tool servers and their tools; `window` is in tokens, None if it is unknown."""
    for tool_server in servers:
        if tool_server.state != "ready":
            problem = tool_server.problem or f"is {tool_server.state}"
            return fail(
                f"{tool_server.spec.name} {problem}",
                f"run temper tools, and check mcp.{tool_server.spec.name}",
            )
    warnings = [
        f"{tool_server.spec.name} {warning}"
        for tool_server in servers
        for warning in tool_server.warnings
    ]
    if warnings:
        return warn(warnings[0], "run temper tools to see the current definitions")
    offered = [tool for tool_server in servers for tool in tool_server.offered]
    names = [tool.tool.name for tool in offered]
    duplicates = sorted({name for name in names if names.count(name) > 1})
    if duplicates:
        problem = f"two servers have a tool {duplicates[0]!r}"
        return warn(problem, "set a prefix for one of the servers")
    tokens = sum(count_rough_tokens(tool.tool.source.decode()) for tool in offered)
    summary = f"{len(offered)} tools of {len(servers)} servers are offered, about {tokens} tokens"
    remedy = "list fewer tools in mcp.NAME.tools; models choose worse among many tools"
    # with 95 tools of a gateway, a model of 30B parameters chose wrong tools (decision 0023)
    is_large = window is not None and tokens > window * 0.2
    return warn(summary, remedy) if is_large or len(offered) > 20 else ok(summary)


_CHECK_SECONDS = 120.0  # the usual time limit of a check
_LONG_CHECK_SECONDS = 600.0  # for a dozen requests: without a GPU, each takes 10 s or more

RunCheck: TypeAlias = Callable[[Target], Awaitable[Finding]]
OnResults: TypeAlias = Callable[[Target, Sequence[CheckResult]], None]
OnStep: TypeAlias = Callable[[str], object]


@dataclass(frozen=True, slots=True)
class Check:
    """A check with a time limit in `seconds`; if a vital check fails, later checks are skipped."""

    title: str
    run: RunCheck
    is_vital: bool = False
    seconds: float = _CHECK_SECONDS


MACHINE: Mapping[str, Callable[[Settings], Finding]] = {
    "package": lambda _: judge_package_name(find_distributions("proxy", sys.path)),
    "open files": lambda settings: judge_descriptors(
        open_file_limit(), settings.server.max_waiting
    ),
    "memory": lambda _: judge_memory(detect_hardware()),
    "Temper's address": check_address,
}
CHECKS: tuple[Check, ...] = (
    Check("readiness", server.check_readiness, is_vital=True),
    Check("version", server.check_version, is_vital=True),
    Check("window", server.check_window),
    Check("chat template", server.check_template),
    Check("forced call", exchanges.check_forced_call),
    Check("disconnect", exchanges.check_disconnect),
    Check("prompt cache", exchanges.check_prompt_cache),
    Check("token count", exchanges.check_token_count),
    Check("overflow", exchanges.check_overflow),
    Check("speed", exchanges.check_speed),
    Check("constraints", exchanges.check_constraints, seconds=_LONG_CHECK_SECONDS),
    Check("refusals", exchanges.list_refusals),
    Check("web pages", server.check_web_pages),
    Check("server access", server.check_key),
)


async def examine(
    settings: Settings,
    client: Client | None = None,
    on_results: OnResults = lambda _target, _results: None,
    on_step: OnStep = lambda _step: None,
) -> AsyncGenerator[CheckResult, None]:
    """Check this machine, then each configured model; start a server for a model file.

    With a `client`, each model is also checked for that client. `on_results` receives all results
    of a model, unless a vital check failed. `on_step` receives a description of each long step
    before it begins. Raises `InvalidConfiguration` if no server or model is configured.
    """
    checks = CHECKS
    if client is not None:
        checks += (
            Check(f"{client.title} answer", client.check_answer),
            Check(f"{client.title} call", client.check_call),
            Check(client.title, client.check_window),
            Check("settings", client.show_settings),
        )
    if settings.mcp:
        checks += (Check("tool servers", tool_servers),)
    for title, check_machine in MACHINE.items():
        yield CheckResult(title, check_machine(settings))
    for single in [settings_of(settings, name) for name in settings.models] or [settings]:
        examining = _examine_server(choose_window(single), checks, on_results, on_step)
        async with aclosing(examining) as findings:
            async for result in findings:
                yield result


async def _examine_server(
    settings: Settings, checks: tuple[Check, ...], on_results: OnResults, on_step: OnStep
) -> AsyncGenerator[CheckResult, None]:
    """Run every check of a server; a managed server is stopped afterwards."""

    def on_stage(progress: StartProgress) -> None:
        on_step(f"{progress.stage} {progress.name}")

    try:
        async with open_shared_server(settings, on_stage) as managed, AsyncExitStack() as stack:
            if managed is None:
                on_step("connecting")
            target = await _open_target(settings, managed, stack)
            results: list[CheckResult] = []
            for check in checks:
                on_step(f"checking: {check.title}")
                finding = await _run_check(check, target)
                model = settings.model.alias or target.model
                results.append(CheckResult(check.title, finding, model))
                yield results[-1]
                if check.is_vital and finding.status == "fail":
                    return  # `on_results` is not called, because nothing was measured
            on_results(target, results)
    except ProcessFailed as error:
        # the last log lines of llama-server often contain the cause
        remedy = " | ".join(("last log lines:", *error.log[-3:])) if error.log else "see above"
        yield CheckResult("start", fail(str(error), remedy), alias_of(settings.model))


async def _open_target(
    settings: Settings, managed: Supervisor | None, stack: AsyncExitStack
) -> Target:
    """Wait until the server is ready; open HTTP clients for the server and for Temper."""
    address = await managed.ready() if managed is not None else address_of(settings)
    serving = server_options_of(settings)
    opening = open_services(settings, serving, lambda _stage: None, remote=managed)
    services = await stack.enter_async_context(opening)
    app_transport = httpx.ASGITransport(create_app(services, serving))
    temper_key = next(iter(serving.access.keys.values()), None)
    headers = {"authorization": f"Bearer {temper_key}"} if temper_key else {}
    timeout = httpx.Timeout(100.0, connect=5.0)
    # no keep-alive: a server may close an idle connection just as the next request is sent
    direct = httpx.AsyncClient(
        base_url=address.base_url,
        timeout=timeout,
        limits=httpx.Limits(max_keepalive_connections=0),
        trust_env=False,
    )
    # localhost: Temper rejects unknown names in the Host header (F38)
    temper = httpx.AsyncClient(
        base_url="http://localhost", transport=app_transport, timeout=timeout, headers=headers
    )
    await stack.enter_async_context(direct)
    await stack.enter_async_context(temper)
    response = await temper.get("/v1/models")
    listed = response.json().get("data") if response.is_success else None
    # a server that lists no models accepts any name
    model = str(listed[0]["id"]) if listed else "default"
    known = await services.find(model).look_up(model)
    requested = settings.model.context_tokens if managed is not None else None
    window = settings.context.window_tokens or requested
    return Target(settings, model, known, direct, temper, address.api_key, window)


async def _run_check(check: Check, target: Target) -> Finding:
    """Run a check; errors and timeouts are returned as findings."""
    try:
        async with asyncio.timeout(check.seconds):
            return await check.run(target)
    except TimeoutError:
        problem = f"no response within {check.seconds:g} seconds"
        return fail(problem, "check whether the server is busy with other requests")
    except httpx.HTTPError as error:
        return fail(
            f"connection error: {str(error) or type(error).__name__}", "check the server's log"
        )
    except TemperError as error:
        return skip(str(error))
