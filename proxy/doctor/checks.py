"""The checks in their order: what is wrong with an earlier one spares the later ones."""

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
from proxy.mcp.inspection import InspectedServer, inspect_servers
from proxy.processes.start_progress import StartProgress
from proxy.processes.supervisor import Supervisor
from proxy.serving.managed_server import alias_of, settle_window
from proxy.serving.opening import address_of, open_services, open_shared_server, settings_of
from proxy.settings import Settings, is_loopback
from proxy.systems import open_file_limit


def judge_descriptors(limit: int, streams: int) -> Finding:
    """Return whether so many open files are enough for streams; a negative limit is none."""
    # some of its own, and for each stream the client's socket and the backend's
    needed = 64 + 2 * streams
    if limit < 0 or limit >= needed:
        return ok(f"{'any number of' if limit < 0 else limit} open files are allowed")
    return warn(
        f"only {limit} open files are allowed, and full queues need {needed}",
        f"ulimit -n {needed}, or lower server.max_waiting",
    )


def judge_memory(found: Memory) -> Finding:
    """Return whether anything is left; a device that a model fills is as it should be."""
    parts = [f"{amount(found.free)} of {amount(found.total)} of main memory"]
    parts += [f"{amount(one.free)} of {amount(one.total)} of {one.name}" for one in found.devices]
    told = f"{' and '.join(parts)} {'is' if len(parts) == 1 else 'are'} free"
    if found.free < 1 << 30:
        return warn(told, "end other programs, or use a smaller model or window")
    return ok(told)


def reachability(settings: Settings) -> Finding:
    """Tell who can reach Temper; without a key beyond loopback the settings are refused."""
    host, port = settings.server.host, settings.server.ollama_port
    whom = ", for this machine alone" if is_loopback(host) else " and wants its key"
    told = f"Temper listens on {host}{whom}"
    if not port:
        return ok(told)
    try:
        listen(host, port).close()
    except InvalidConfiguration:
        return warn(
            f"port {port} is taken, where Temper is to listen as an Ollama does",
            "stop the Ollama that has it, if it is no Temper; or set server.ollama_port to 0",
        )
    return ok(f"{told}, and on port {port} as an Ollama does")


def owners_of(package: str, folders: list[str]) -> Iterator[str]:
    """Yield the names of the distributions in these folders that have a package.

    `importlib.metadata.packages_distributions` takes seconds, as it looks at every file of all.
    """
    for one in Distribution.discover(path=folders):
        declared = (one.read_text("top_level.txt") or "").split()
        if package in declared or f"\n{package}/" in f"\n{one.read_text('RECORD')}":
            yield one.metadata["Name"]


def judge_package_name(owners: Iterable[str]) -> Finding:
    """Return whether the package `proxy` is ours alone: of two, one overwrites the other."""
    others = sorted({*owners} - {DISTRIBUTION})
    if not others:
        return ok("the package `proxy` is Temper's alone")
    said = f"{others[0]} has a package `proxy` as well, and one breaks the other"
    return warn(said, "install Temper in an environment of its own: pipx install temper-proxy")


async def tool_servers(target: Target) -> Finding:
    """Start each server, and weigh what would be offered of it against the window."""
    return judge_tool_servers(await inspect_servers(target.settings), target.known.window)


def judge_tool_servers(servers: tuple[InspectedServer, ...], window: int | None) -> Finding:
    """Return what is wrong with tool servers; `window` in tokens, None where nobody knows."""
    for one in servers:
        if one.state != "ready":
            said = one.problem or f"is {one.state}"
            return fail(f"{one.spec.name} {said}", f"temper tools; see mcp.{one.spec.name}")
    odd = [f"{one.spec.name} {warning}" for one in servers for warning in one.warnings]
    if odd:
        return warn(odd[0], "temper tools shows what its server defines now")
    offered = [tool for one in servers for tool in one.offered]
    names = [tool.tool.name for tool in offered]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        return warn(f"two servers have a tool {twice[0]!r}", "set a prefix for one of them")
    tokens = sum(count_rough_tokens(tool.tool.source.decode()) for tool in offered)
    told = f"{len(offered)} tools of {len(servers)} servers are offered, about {tokens} tokens"
    remedy = "name fewer in mcp.NAME.tools: models choose worse among many"
    is_large = window is not None and tokens > window * 0.2
    return warn(told, remedy) if is_large or len(offered) > 20 else ok(told)


_CHECK_SECONDS = 120.0
_LONG_CHECK_SECONDS = 600.0  # for a dozen requests: on a processor each takes 10 s and more

Look: TypeAlias = Callable[[Target], Awaitable[Finding]]
Keep: TypeAlias = Callable[[Target, Sequence[CheckResult]], None]
OnStep: TypeAlias = Callable[[str], object]


@dataclass(frozen=True, slots=True)
class Check:
    """One thing to look at, for so many `seconds`; the checks end where a vital one fails."""

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
    Check("hanging up", exchanges.hanging_up),
    Check("prompt cache", exchanges.repeat_prompt),
    Check("token count", exchanges.counting),
    Check("overflow", exchanges.overflow),
    Check("speed", exchanges.speed),
    Check("honours", exchanges.honours, seconds=_LONG_CHECK_SECONDS),
    Check("refusals", exchanges.refusals),
    Check("open doors", server.open_doors),
    Check("way to the server", server.key),
)


async def examine(
    settings: Settings,
    client: Client | None = None,
    keep: Keep = lambda _target, _found: None,
    on_step: OnStep = lambda _step: None,
) -> AsyncGenerator[CheckResult, None]:
    """Examine this machine, then the server; a model that is named is started for it.

    Several models are examined one after the other, each also for a `client`. `keep` gets all that
    was found of a model that could be examined. `on_step` gets the name of each step that may take
    long, before it begins. Raises `InvalidConfiguration` if nothing is named.
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
    """Make every check of one server; one that has to be started is stopped afterwards."""

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
        # the end of a server's own log may say more than our sentence about it
        last = " | ".join(("its log ends so:", *error.log[-3:])) if error.log else "see above"
        yield CheckResult("start", fail(str(error), last), alias_of(settings.model))


async def _open_target(settings: Settings, own: Supervisor | None, stack: AsyncExitStack) -> Target:
    """Open the ways to a server, once it is ready: straight, and through all of Temper."""
    address = await own.ready() if own is not None else address_of(settings)
    serving = server_options_of(settings)
    opening = open_services(settings, serving, lambda _stage: None, remote=own)
    services = await stack.enter_async_context(opening)
    through = httpx.ASGITransport(create_app(services, serving))
    own_key = next(iter(serving.access.keys.values()), None)
    headers = {"authorization": f"Bearer {own_key}"} if own_key else {}
    patience = httpx.Timeout(100.0, connect=5.0)
    # a server may end a connection while nothing is asked, just when the next question is sent
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
    model = str(listed[0]["id"]) if listed else "default"  # it may have any name then
    known = await services.find(model).look_up(model)
    asked = settings.model.context_tokens if own is not None else None
    wanted = settings.context.window_tokens or asked
    return Target(settings, model, known, direct, temper, address.api_key, wanted)


async def _run_check(check: Check, target: Target) -> Finding:
    """Make a check; whatever goes wrong with it is a finding too."""
    try:
        async with asyncio.timeout(check.seconds):
            return await check.look(target)
    except TimeoutError:
        said = f"no answer within {check.seconds:g} seconds"
        return fail(said, "is the server busy, or very slow?")
    except httpx.HTTPError as error:
        return fail(
            f"the server broke off: {str(error) or type(error).__name__}", "look into its log"
        )
    except TemperError as error:
        return skip(str(error))
