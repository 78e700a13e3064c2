"""The list of checks and their execution; a failed vital check ends the list."""

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
from proxy.hardware.snapshot import snapshot
from proxy.hardware.summary import amount
from proxy.processes.start_progress import StartProgress
from proxy.processes.supervisor import Supervisor
from proxy.serving.managed_server import alias_of, settle_window
from proxy.serving.opening import address_of, open_services, open_shared_server, settings_of
from proxy.serving.tool_inventory import InspectedServer, inspect_servers
from proxy.settings import Settings, is_loopback
from proxy.systems import open_file_limit


def judge_descriptors(limit: int, streams: int) -> Finding:
    """Check the limit of open files against the number of streams; negative means no limit."""
    # 64 for Temper itself, and two sockets per stream: the client's and the backend's
    needed = 64 + 2 * streams
    if limit < 0 or limit >= needed:
        return ok(f"{'unlimited' if limit < 0 else limit} open files are allowed")
    return warn(
        f"only {limit} open files are allowed; a full queue needs {needed}",
        f"run ulimit -n {needed}, or lower server.max_waiting",
    )


def judge_memory(found: Memory) -> Finding:
    """Check free main memory; full GPU memory is normal while a model is loaded."""
    parts = [f"{amount(found.free)} of {amount(found.total)} of main memory"]
    parts += [f"{amount(one.free)} of {amount(one.total)} of {one.name}" for one in found.devices]
    told = f"{' and '.join(parts)} {'is' if len(parts) == 1 else 'are'} free"
    if found.free < 1 << 30:
        return warn(told, "stop other programs, or use a smaller model or window")
    return ok(told)


def reachability(settings: Settings) -> Finding:
    """Report where Temper listens; settings without a key beyond loopback are invalid anyway."""
    host, port = settings.server.host, settings.server.ollama_port
    access = (
        ", reachable from this machine only" if is_loopback(host) else ", an API key is required"
    )
    told = f"Temper listens on {host}{access}"
    if not port:
        return ok(told)
    try:
        listen(host, port).close()
    except InvalidConfiguration:
        return warn(
            f"port {port} (server.ollama_port) is already in use",
            "stop the Ollama that uses it, or set server.ollama_port to 0",
        )
    return ok(f"{told}, and on port {port} for Ollama clients")


def owners_of(package: str, folders: list[str]) -> Iterator[str]:
    """Yield the distributions in these folders that contain a package.

    `importlib.metadata.packages_distributions` takes seconds: it reads every file list.
    """
    for one in Distribution.discover(path=folders):
        declared = (one.read_text("top_level.txt") or "").split()
        if package in declared or f"\n{package}/" in f"\n{one.read_text('RECORD')}":
            yield one.metadata["Name"]


def judge_package_name(owners: Iterable[str]) -> Finding:
    """Check that no other distribution installs a package `proxy`: they would conflict."""
    others = sorted({*owners} - {DISTRIBUTION})
    if not others:
        return ok("no other distribution installs a package `proxy`")
    said = f"{others[0]} also installs a package `proxy`, which conflicts with Temper"
    return warn(said, "install Temper in a separate environment: pipx install temper-proxy")


async def tool_servers(target: Target) -> Finding:
    """Start each tool server, and compare the size of its tools with the window."""
    return judge_tool_servers(await inspect_servers(target.settings), target.known.window)


def judge_tool_servers(servers: tuple[InspectedServer, ...], window: int | None) -> Finding:
    """Check tool servers and their tools; `window` in tokens, None if it is unknown."""
    for one in servers:
        if one.state != "ready":
            said = one.problem or f"is {one.state}"
            return fail(
                f"{one.spec.name} {said}", f"run temper tools, and check mcp.{one.spec.name}"
            )
    odd = [f"{one.spec.name} {warning}" for one in servers for warning in one.warnings]
    if odd:
        return warn(odd[0], "run temper tools to see the current definitions")
    offered = [tool for one in servers for tool in one.offered]
    names = [tool.tool.name for tool in offered]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        return warn(f"two servers have a tool {twice[0]!r}", "set a prefix for one of the servers")
    tokens = sum(count_rough_tokens(tool.tool.source.decode()) for tool in offered)
    told = f"{len(offered)} tools of {len(servers)} servers are offered, about {tokens} tokens"
    remedy = "list fewer tools in mcp.NAME.tools; models choose worse among many"
    is_large = window is not None and tokens > window * 0.2
    return warn(told, remedy) if is_large or len(offered) > 20 else ok(told)


_CHECK_SECONDS = 120.0
_LONG_CHECK_SECONDS = 600.0  # for a dozen requests: on a processor each takes 10 s and more

Look: TypeAlias = Callable[[Target], Awaitable[Finding]]
Keep: TypeAlias = Callable[[Target, Sequence[CheckResult]], None]
OnStep: TypeAlias = Callable[[str], object]


@dataclass(frozen=True, slots=True)
class Check:
    """A check with a time limit in `seconds`; if it is vital, its failure ends the list."""

    title: str
    look: Look
    is_vital: bool = False
    seconds: float = _CHECK_SECONDS


MACHINE: Mapping[str, Callable[[Settings], Finding]] = {
    "package": lambda _: judge_package_name(owners_of("proxy", sys.path)),
    "open files": lambda own: judge_descriptors(open_file_limit(), own.server.max_waiting),
    "memory": lambda _: judge_memory(snapshot()),
    "Temper's address": reachability,
}
CHECKS: tuple[Check, ...] = (
    Check("readiness", server.readiness, is_vital=True),
    Check("version", server.version, is_vital=True),
    Check("window", server.window),
    Check("chat template", server.template),
    Check("forced call", exchanges.force_call),
    Check("disconnect", exchanges.disconnect),
    Check("prompt cache", exchanges.repeat_prompt),
    Check("token count", exchanges.counting),
    Check("overflow", exchanges.overflow),
    Check("speed", exchanges.speed),
    Check("constraints", exchanges.constraints, seconds=_LONG_CHECK_SECONDS),
    Check("refusals", exchanges.refusals),
    Check("web pages", server.web_pages),
    Check("server access", server.key),
)


async def examine(
    settings: Settings,
    client: Client | None = None,
    keep: Keep = lambda _target, _found: None,
    on_step: OnStep = lambda _step: None,
) -> AsyncGenerator[CheckResult, None]:
    """Check this machine, then the server; a configured model file is started first.

    Several models are checked one after the other, each also for a `client`. `keep` receives all
    results of a model that could be checked. `on_step` receives the name of each long step before
    it begins. Raises `InvalidConfiguration` if no server or model is configured.
    """
    checks = CHECKS
    if client is not None:
        checks += (
            Check(f"{client.title} answer", client.answers),
            Check(f"{client.title} call", client.calls),
            Check(client.title, client.window),
            Check("settings", client.settings),
        )
    if settings.mcp:
        checks += (Check("tool servers", tool_servers),)
    for title, look in MACHINE.items():
        yield CheckResult(title, look(settings))
    for each in [settings_of(settings, name) for name in settings.models] or [settings]:
        examining = _examine_server(settle_window(each), checks, keep, on_step)
        async with aclosing(examining) as findings:
            async for found in findings:
                yield found


async def _examine_server(
    settings: Settings, checks: tuple[Check, ...], keep: Keep, on_step: OnStep
) -> AsyncGenerator[CheckResult, None]:
    """Run every check of a server; a managed server is stopped afterwards."""

    def on_stage(progress: StartProgress) -> None:
        on_step(f"{progress.stage} {progress.name}")

    try:
        async with open_shared_server(settings, on_stage) as own, AsyncExitStack() as stack:
            if own is None:
                on_step("connecting")
            target = await _open_target(settings, own, stack)
            everything: list[CheckResult] = []
            for check in checks:
                on_step(f"checking: {check.title}")
                found = await _run_check(check, target)
                model = settings.model.alias or target.model
                everything.append(CheckResult(check.title, found, model))
                yield everything[-1]
                if check.is_vital and found.status == "fail":
                    return
            keep(target, everything)
    except ProcessFailed as error:
        # the last log lines often contain the actual cause
        last = " | ".join(("last log lines:", *error.log[-3:])) if error.log else "see above"
        yield CheckResult("start", fail(str(error), last), alias_of(settings.model))


async def _open_target(settings: Settings, own: Supervisor | None, stack: AsyncExitStack) -> Target:
    """Open two clients for a server once it is ready: direct, and through Temper."""
    address = await own.ready() if own is not None else address_of(settings)
    serving = server_options_of(settings)
    opening = open_services(settings, serving, lambda _stage: None, remote=own)
    services = await stack.enter_async_context(opening)
    through = httpx.ASGITransport(create_app(services, serving))
    own_key = next(iter(serving.access.keys.values()), None)
    headers = {"authorization": f"Bearer {own_key}"} if own_key else {}
    patience = httpx.Timeout(100.0, connect=5.0)
    # no keep-alive: a server may close an idle connection just as the next request is sent
    direct = httpx.AsyncClient(
        base_url=address.base_url,
        timeout=patience,
        limits=httpx.Limits(max_keepalive_connections=0),
        trust_env=False,
    )
    temper = httpx.AsyncClient(
        base_url="http://localhost", transport=through, timeout=patience, headers=headers
    )
    await stack.enter_async_context(direct)
    await stack.enter_async_context(temper)
    answer = await temper.get("/v1/models")
    listed = answer.json().get("data") if answer.is_success else None
    model = str(listed[0]["id"]) if listed else "default"  # without a list, any name works
    known = await services.find(model).look_up(model)
    asked = settings.model.context_tokens if own is not None else None
    wanted = settings.context.window_tokens or asked
    return Target(settings, model, known, direct, temper, address.api_key, wanted)


async def _run_check(check: Check, target: Target) -> Finding:
    """Run a check; its errors and timeouts become findings."""
    try:
        async with asyncio.timeout(check.seconds):
            return await check.look(target)
    except TimeoutError:
        problem = f"no response within {check.seconds:g} seconds"
        return fail(problem, "check whether the server is busy with other requests")
    except httpx.HTTPError as error:
        return fail(
            f"connection error: {str(error) or type(error).__name__}", "check the server's log"
        )
    except TemperError as error:
        return skip(str(error))
