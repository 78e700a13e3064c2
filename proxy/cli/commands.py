"""Implementation of the commands; flags and exit codes are in `app`."""

# Imports are inside the functions, so that every command starts fast. They run before the event
# loop starts, because Ctrl-C then ends the process at once (`signals`). Inside the event loop,
# Ctrl-C would have no effect until the import is complete.

import asyncio
import contextlib
import os
import re
import shlex
import sys
from collections.abc import AsyncGenerator, Coroutine, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from proxy import version
from proxy.cli.output import echo
from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.errors import InvalidConfiguration, LaunchFailed
from proxy.files import read_text
from proxy.observability.sentences import visible_json
from proxy.settings import Settings

if TYPE_CHECKING:
    from proxy.cli.status_line import StatusLine
    from proxy.doctor.target import CheckResult, Target
    from proxy.mcp.inspection import InspectedServer
    from proxy.processes.model_caches import CachedModel

Work: TypeAlias = Coroutine[None, None, bool]
"""The asynchronous part of a command; returns whether the command succeeded."""


def watch(url: str, key_file: Path | None) -> Work:
    """Show the requests of a running Temper until `q` or a signal."""
    from proxy.cli.top import watch_feed

    return watch_feed(url, read_key(key_file) if key_file is not None else "")


def read_key(file: Path) -> str:
    """Read an API key from a file; raises `InvalidConfiguration` if it has none."""
    key = read_text(file, "--key-file").strip()
    if not re.fullmatch(r"[!-~]+", key):
        raise InvalidConfiguration("--key-file", f"{file} must contain exactly one key")
    return key


def show_models(settings: Settings, *, known: bool, as_json: bool) -> Work:
    from proxy.serving.inventory import list_models, list_profiles

    async def work() -> bool:
        models = list_profiles(settings) if known else await list_models(settings)
        if as_json:
            print_json({"models": [model.document() for model in models]})
            return True
        for model in models:
            echo(model.name, bold=True)
            for word, line in model.summary().items():
                echo(f"  {word:9} {line}")
        return True

    return work()


def examine_servers(
    settings: Settings,
    bundle: Path | None,
    addresses: tuple[str, ...],
    *,
    client: str | None,
    as_json: bool,
) -> Work:
    """Run the checks and print each finding; returns True if no check failed.

    If the settings name no server, look for a server at `addresses`. `client` adds the checks for
    that client. On a terminal, a status line shows the running check.
    """
    from proxy.cli.status_line import open_status_line
    from proxy.doctor import report
    from proxy.doctor.checks import examine
    from proxy.doctor.clients import CLIENTS
    from proxy.profiles.tried_models import TriedModels, cache_folder
    from proxy.serving.opening import find_backend, with_backend

    tried = TriedModels(cache_folder())

    def keep(target: "Target", results: "Sequence[CheckResult]") -> None:
        tried.save(report.build_tried_model(target, results, version()))

    async def work() -> bool:
        with open_status_line(is_wanted=sys.stdout.isatty() and not as_json) as status:
            status.begin("searching for a server")
            server = await find_backend(settings, addresses, "doctor")
            target = with_backend(settings, server)
            examining = examine(target, CLIENTS.get(client or ""), keep, status.begin)
            results = await _show_findings(examining, None if as_json else status)
        if as_json:
            print_json(report.document(results))
        if bundle is not None:
            report.write_bundle(bundle, target, results)
            echo(f"Report written to {bundle}. Check its contents before sending it.", err=True)
        return report.has_no_failure(results)

    return work()


def examine_recording(settings: Settings, recording: Path, *, as_json: bool) -> Work:
    """Show which prompts of a recording the engine read again, and why."""
    from proxy.cli.safe_console import SafeConsole
    from proxy.doctor import prompt_cache

    async def work() -> bool:
        conversations = await prompt_cache.examine_cache(recording, settings)
        if as_json:
            print_json(prompt_cache.document(conversations))
            return True
        console = SafeConsole()
        for table in prompt_cache.tables(conversations):
            console.print(table)
            console.print()
        console.print(prompt_cache.summary(conversations), soft_wrap=True)
        return True

    return work()


async def _show_findings(
    examining: "AsyncGenerator[CheckResult, None]", status: "StatusLine | None"
) -> "list[CheckResult]":
    """Return all findings; with a `status`, also print each finding and a summary."""
    from proxy.cli.safe_console import SafeConsole
    from proxy.doctor import report

    console = SafeConsole()
    results: list[CheckResult] = []
    async with contextlib.aclosing(examining) as findings:
        async for result in findings:
            if status is not None:
                status.clear()
                console.print(report.line(result, results), soft_wrap=True)
            results.append(result)
    if status is not None:
        status.end()
        console.print(f"\n{report.summary(results)}")
    return results


def launch_agent(
    agent: str, settings: Settings, options: Sequence[str], arguments: Sequence[str], *, name: str
) -> Work:
    """Run a coding agent in the foreground, and exit with its exit code.

    If no Temper is running, a Temper is started with the `options` of `temper serve`. `arguments`
    are passed to the agent, and `name` selects one of several models.
    """
    from proxy.cli.status_line import open_status_line
    from proxy.launch.agents import AGENTS, LEAST_WINDOW
    from proxy.launch.launching import find_program, run_agent, temper_for

    known = AGENTS[agent]

    async def work() -> bool:
        program = find_program(known)
        with open_status_line() as status:
            async with temper_for(settings, options, name, status.begin) as endpoint:
                status.end()
                window = "unknown" if endpoint.window is None else f"{endpoint.window} tokens"
                echo(f"{known.title} uses {endpoint.model} (window: {window})", err=True)
                if (endpoint.window or LEAST_WINDOW) < LEAST_WINDOW:
                    echo(f"A coding agent needs {LEAST_WINDOW}: use --context-tokens.", err=True)
                code = await run_agent(program, known.profile(endpoint), arguments)
        sys.exit(code)

    return work()


def configure_agent(agent: str, settings: Settings, name: str, *, is_installed: bool) -> Work:
    """Print the configuration of an agent for the running Temper, or write it permanently."""
    from proxy.launch.agents import AGENTS, describe
    from proxy.launch.launching import running_temper
    from proxy.launch.user_files import install, path_of

    known = AGENTS[agent]

    async def work() -> bool:
        endpoint = await running_temper(settings, name)
        if not is_installed:
            echo(describe(known.profile(endpoint), known.program), has_lines=True)
            return True
        if known.permanent is None:
            raise InvalidConfiguration(
                "--install", f"is not supported for {known.title}. Use the output of --print."
            )
        installation = known.permanent(endpoint)
        file = path_of(installation, os.environ, Path.home())
        install(file, installation.content)
        echo(f"Written: {file}")
        echo(f"To use it: {installation.command}    To undo it: temper launch {agent} --remove")
        return True

    return work()


def remove_agent(agent: str) -> None:
    """Undo the change that `configure_agent` made to the agent's own file."""
    from proxy.launch.agents import AGENTS, Endpoint
    from proxy.launch.user_files import path_of, remove

    permanent = AGENTS[agent].permanent
    if permanent is not None:
        installation = permanent(Endpoint("", ""))
        file = path_of(installation, os.environ, Path.home())
        if remove(file, installation.content):
            echo(f"Restored: {file}")
            return
    echo(f"Nothing to remove: {agent} was not installed by Temper.")


def list_tuned() -> Iterator[str]:
    """Yield a line for each model with settings from `temper tune`."""
    from proxy.profiles.tried_models import cache_folder
    from proxy.profiles.tuned import describe_tuned, read_tuned

    for path, tuned in read_tuned(cache_folder(kind="tuned")):
        description = describe_tuned(tuned) or "no settings"
        yield f"tuned for {tuned.get('keys', {}).get('model')}: {description} ({path})"


def show_tried(*, as_json: bool) -> None:
    from proxy.cli.safe_console import SafeConsole
    from proxy.doctor.report import NOTHING_TRIED, build_tried_document, describe_tried
    from proxy.profiles.tried_models import TriedModels, cache_folder

    tried = TriedModels(cache_folder()).all()
    if as_json:
        print_json(build_tried_document(tried))
    elif tried:
        SafeConsole().print(describe_tried(tried), soft_wrap=True)
    else:
        echo(NOTHING_TRIED)
    for line in () if as_json else list_tuned():
        echo(line)


_EXAMPLE = "Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF:Q4_K_M"
_NO_TOOL_SERVERS = """\
No tool servers are configured. Add one to the settings file, for example:
[mcp.files]
command = ["npx", "-y", "@modelcontextprotocol/server-filesystem", "/path/to/folder"]"""


def show_tools(settings: Settings, *, as_json: bool) -> Work:
    """Print the tool servers and their tools; returns whether all servers are ready."""
    from proxy.mcp.inspection import inspect_servers

    async def work() -> bool:
        servers = await inspect_servers(settings)
        if as_json:
            print_json({"servers": [server.document() for server in servers]})
        elif not servers:
            echo(_NO_TOOL_SERVERS, has_lines=True)
        else:
            for server in servers:
                _show_tool_server(server)
        return all(server.state == "ready" for server in servers)

    return work()


def _show_tool_server(server: "InspectedServer") -> None:
    echo(server.spec.name, bold=True, nl=False)
    echo(f"  {server.state} {server.protocol}")
    for tool in server.definitions:
        mark = server.describe_offer(tool.name)
        description = tool.description.partition("\n")[0][:70]
        echo(f"  {tool.name}  ({mark})  {description}")
    for warning in (server.problem, *server.warnings):
        if warning:
            echo(f"  ! it {warning}")
    if server.definitions:
        echo(f"  digest = {json.dump_text(server.digest)}")


def call_tool(settings: Settings, target: str, arguments: JsonObject, *, as_json: bool) -> Work:
    """Call a tool and print its result; returns whether the call succeeded."""
    from proxy.mcp.inspection import call_once

    async def work() -> bool:
        text, is_done = await call_once(settings, target, arguments)
        if as_json:
            print_json({"ok": is_done, "result": text})
        else:
            echo(text, has_lines=True)
        return is_done

    return work()


def show_version(*, as_json: bool) -> None:
    """Print the versions for a bug report."""
    from proxy.doctor.versions import describe_versions

    versions = describe_versions()
    if as_json:
        print_json(versions)
    else:
        details = "commit {commit}, Python {python}, {engine}".format_map(versions)
        echo(f"temper {versions['temper']} ({details})")


def print_json(value: JsonObject) -> None:
    echo(visible_json(value, indent=0))


async def pull(settings: Settings, repository: str, *, as_json: bool) -> bool:
    """Download a model and print its path; raises `LaunchFailed` and `DownloadFailed`.

    llama-server downloads into its own cache. If the installed llama-server cannot download, Temper
    downloads into the cache of Hugging Face.
    """
    from proxy.cli.terminal import open_terminal
    from proxy.processes.hub import download_from_hub
    from proxy.processes.llama_server import download

    program = _downloader(settings)
    with open_terminal(logs_events=settings.logging.format != "text") as terminal:
        try:
            if program is None:
                terminal.task, follow = "download", terminal.follow
                path = await download_from_hub(repository, follow, os.environ, Path.home())
            else:
                path = await download(program, repository, terminal.follow)
        except asyncio.CancelledError:
            terminal.write(f"Stopped. Continue with: temper pull {repository}")
            return False
    if as_json:
        print_json({"ok": True, "model": repository, "path": str(path)})
    else:
        model = f"--hf {repository}" if program else f"--model {shlex.quote(str(path))}"
        echo(f"Downloaded {repository} to {path}")
        echo(f"To serve it: temper serve {model}")
    return True


def _downloader(settings: Settings) -> tuple[str, ...] | None:
    """Return the command of a llama-server that can download models.

    Returns None if only the embedded llama-server is installed, because it cannot download.
    """
    from proxy.processes.launch import embedded_program, find_program

    try:
        program = find_program(settings.model.server)
    except LaunchFailed:
        if settings.model.server is not None:
            raise
        return None
    return None if program == embedded_program() else program


def show_cached(*, as_json: bool) -> None:
    """Print the models in the caches of this machine."""
    from proxy.hardware.summary import amount
    from proxy.processes.model_caches import list_cached_models

    models = list_cached_models(os.environ, Path.home(), sys.platform)
    if as_json:
        print_json({"models": [], "cached": [*map(_document, models)]})
        return
    for model in models:
        echo(model.name, bold=True)
        details = (model.quantisation, amount(model.size), model.owner)
        echo(f"  {', '.join(filter(None, details))}")
        echo(f"  {model.path}")
        if model.problem:
            echo("  unusable:", fg="yellow", nl=False)
            echo(f" {model.problem}")
    if not all(model.problem for model in models):
        echo("\nTo serve a model: temper serve --model PATH", has_lines=True)
    elif not models:
        echo(
            "No models found in the caches of llama.cpp, Hugging Face, Ollama and LM Studio.\n"
            f"Download one, for example: temper pull {_EXAMPLE}\n"
            "Or try temper demo, which needs no model.",
            has_lines=True,
        )


def _document(model: "CachedModel") -> JsonObject:
    return {
        "name": model.name,
        "from": model.owner,
        "path": str(model.path),
        "bytes": model.size,
        "quantisation": model.quantisation or None,
        "problem": model.problem or None,
    }
