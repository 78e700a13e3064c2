"""Commands and flags: `temper serve`, `models`, `tools`, `doctor`, `check` and others.

This module turns flags into settings, and an error into one sentence and an exit code.
"""

# Commands import their dependencies when they run, so that `temper --version` and errors in the
# settings appear at once. Importing the web framework takes most of a second.

import os
import signal
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import click

from proxy.cli import commands
from proxy.cli.output import echo
from proxy.cli.running import FAILED, Flags, fail, load, run
from proxy.cli.usage import CommandGroup, ServeCommand
from proxy.conversation import json
from proxy.errors import TemperError
from proxy.launch.agents import AGENTS, LEAST_WINDOW
from proxy.observability.logs import configure_logging
from proxy.settings import (
    DEFAULT_SETTINGS,
    all_in_one,
    load_settings,
    load_with_origins,
    settings_file,
)
from proxy.settings.values import usable_repository
from proxy.systems import prepare_console

CLIENTS = ("claude-code", "codex")  # as in `doctor.clients`, which takes too long to import here

# \b keeps click from joining the lines
_EPILOG = """\b
New here? Try: temper demo
Tab completion: eval "$(_TEMPER_COMPLETE=bash_source temper)"
(zsh_source for zsh; for fish: _TEMPER_COMPLETE=fish_source temper | source)"""

_CONFIG = click.option(
    "--config",
    type=click.Path(path_type=Path),
    help="Settings file. Default: temper.toml in the working directory, if it exists.",
)
_KEPT_MEGABYTES = 50  # for --keep without a number
_OLLAMA = click.option("--ollama", help="Model of the local Ollama, or of the one at OLLAMA_HOST.")
# This option is hidden, because only tests use it. Without it, the default ports of known engines
# are searched.
_LOOK_AT = click.option(
    "--look-at", multiple=True, hidden=True, help="Address to search for a running server."
)
_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def _repository(_context: click.Context, _parameter: click.Parameter, value: str) -> str:
    try:
        return usable_repository(value)
    except ValueError as problem:
        raise click.BadParameter(str(problem)) from None


def _keep_standard_streams() -> None:
    """Open /dev/null for each closed standard stream, so that no socket gets the stream's number.

    libuv aborts the process when it closes a socket with a number below 3.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)  # returns the lowest free number: `number`
            os.set_inheritable(opened, True)  # noqa: FBT003 - it accepts no keyword arguments


def _print_version(context: click.Context, _parameter: click.Parameter, is_requested: bool) -> None:  # noqa: FBT001 - click passes positional arguments
    if is_requested:
        commands.show_version(as_json=False)
        context.exit()


@click.group(
    cls=CommandGroup, context_settings={"help_option_names": ["-h", "--help"]}, epilog=_EPILOG
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,  # runs before click reports a missing command
    expose_value=False,
    callback=_print_version,
    help="Print the versions of Temper, Python and the engine.",
)
def main() -> None:
    """Temper makes tool calling with local models reliable."""
    _keep_standard_streams()
    prepare_console()


@main.command(cls=ServeCommand)
@click.option(
    "--backend-url",
    "backend_urls",
    multiple=True,
    help="URL of a running server; repeat for a pool of servers with the same model.",
)
@click.option(
    "--model", type=click.Path(path_type=Path), help="GGUF file to start llama-server with."
)
@click.option("--hf", help="Hugging Face model to start, e.g. owner/name:Q4_K_M.")
@_OLLAMA
@click.option("--host", help="Address to listen on.")
@click.option("--port", type=int, help="Port to listen on; 0 picks a free port.")
@click.option(
    "--like-ollama",
    type=int,
    is_flag=False,
    flag_value=11434,
    metavar="[PORT]",
    help="Also listen on the port of Ollama (11434), or on another port.",
)
@click.option(
    "--context-tokens", type=int, help="Context window in tokens, with --model or --ollama."
)
@click.option("--slots", type=int, help="Concurrent requests, with --model.")
@click.option("--budget", help="Window size: backend, manual, full (largest that fits) or fast.")
@click.option("--workers", type=int, help="Worker processes; 1 is usually enough.")
@click.option(
    "--text-policy",
    help="Handling of replies without a tool call: auto, accept, respond, require.",
)
@click.option(
    "--strict", is_flag=True, default=None, help="Return 502 if no attempt gave a valid call."
)
@click.option("--log-format", help="Log format: auto, text or json.")
@click.option("--watch", is_flag=True, help="Reload the settings when their file changes.")
@click.option(
    "--keep",
    type=int,
    is_flag=False,
    flag_value=_KEPT_MEGABYTES,
    metavar="[MEGABYTES]",
    help=f"Show the latest requests and replies at /ui: {_KEPT_MEGABYTES} megabytes in memory.",
)
@_CONFIG
@_JSON
@_LOOK_AT
def serve(
    config: Path | None,
    *,
    as_json: bool,
    backend_urls: tuple[str, ...],
    look_at: tuple[str, ...],
    watch: bool,
    keep: int | None,
    **flags: str | int | bool | Path | None,
) -> None:
    """Start the proxy in front of a model server."""
    from proxy.cli.serve import serve as serve_requests

    file = settings_file(config)
    if watch and (file is None or not hasattr(signal, "SIGHUP")):
        raise click.UsageError(
            "--watch requires a settings file (--config FILE), and does not work on Windows."
        )
    overrides: Flags = {
        **_backend_flags({**flags, "backend_url": None}),
        "server": {
            **{name: flags[name] for name in ("host", "port", "workers")},
            "ollama_port": flags["like_ollama"],
        },
        "context": {"budget": flags["budget"]},
        "guardrails": {"text_policy": flags["text_policy"], "strict": flags["strict"]},
        "logging": {"format": flags["log_format"]},
        "recording": {"keep_bytes": None if keep is None else keep * 1_000_000},
    }
    urls = [*backend_urls]
    overrides["backend"] |= {"urls": urls} if urls[1:] else {"url": "".join(urls) or None}
    overrides["ollama" if flags["ollama"] else "model"]["context_tokens"] = flags["context_tokens"]
    overrides["model"]["slots"] = flags["slots"]
    # SIGHUP calls `reload`, which reads the file and the environment again and keeps the flags
    settings, reload = load(config, overrides), partial(load_settings, config, overrides)
    watched = file if watch else None
    run(serve_requests(settings, reload, look_at, as_json=as_json, watched=watched))


@main.command()
@click.argument("repository", metavar="OWNER/NAME[:QUANTIZATION]", callback=_repository)
@_CONFIG
@_JSON
def pull(repository: str, config: Path | None, *, as_json: bool) -> None:
    """Download a model from Hugging Face, e.g. owner/name:Q4_K_M.

    llama-server downloads into its cache, which `temper serve --hf` also uses. With the embedded
    server, Temper downloads into the cache of Hugging Face. An interrupted download continues.
    """
    run(commands.pull(load(config), repository, as_json=as_json))


@main.command()
@click.option("--backend-url", help="URL of a running server, e.g. http://127.0.0.1:9931.")
@click.option(
    "--model", type=click.Path(path_type=Path), help="GGUF file to inspect; no server is started."
)
@_OLLAMA
@click.option("--known", is_flag=True, help="List all profiles.")
@click.option("--cached", is_flag=True, help="List models in caches on this machine.")
@click.option("--tried", is_flag=True, help="List the measurements of temper doctor.")
@_CONFIG
@_JSON
def models(
    config: Path | None,
    *,
    known: bool,
    cached: bool,
    tried: bool,
    as_json: bool,
    **flags: str | Path | None,
) -> None:
    """Show the detected profile of each model, and the reason.

    Without a server or model, list the models in the caches of llama.cpp, Hugging Face, Ollama
    and LM Studio.
    """
    from proxy.serving.opening import selects_no_server

    if tried:
        commands.show_tried(as_json=as_json)
        return
    settings = load(config, _backend_flags(flags), level="warning")
    if cached or (not known and selects_no_server(settings)):
        commands.show_cached(as_json=as_json)
    else:
        run(commands.show_models(settings, known=known, as_json=as_json))


@main.command()
@click.option("--backend-url", help="URL of a running server, e.g. http://127.0.0.1:9931.")
@click.option(
    "--model", type=click.Path(path_type=Path), help="GGUF file to start llama-server with."
)
@_OLLAMA
@click.option(
    "--bundle", type=click.Path(path_type=Path), help="Write a ZIP file for a bug report."
)
@click.option(
    "--client",
    type=click.Choice(CLIENTS),
    help="Also send this client's requests, and print its configuration.",
)
@click.option(
    "--cache",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Analyze this recording, and explain why the engine read prompts again.",
)
@_CONFIG
@_JSON
@_LOOK_AT
def doctor(
    config: Path | None,
    *,
    bundle: Path | None,
    client: str | None,
    cache: Path | None,
    as_json: bool,
    look_at: tuple[str, ...],
    **flags: str | Path | None,
) -> None:
    """Check the machine and the server, and suggest fixes.

    With --cache, check a recording instead: which prompts the engine read again, and why. With the
    --backend-url of a llama-server, the first difference is exact to the token.
    """
    # no log lines: the findings report all problems
    settings = load(config, _backend_flags(flags), level="critical")
    if cache is not None:
        run(commands.examine_recording(settings, cache, as_json=as_json), FAILED)
        return
    run(commands.examine_servers(settings, bundle, look_at, client=client, as_json=as_json), FAILED)


@main.command()
@click.argument("question", required=False, default="")
@click.option("--backend-url", help="URL of a running server, e.g. http://127.0.0.1:9931.")
@click.option(
    "--model", type=click.Path(path_type=Path), help="GGUF file to start llama-server with."
)
@_OLLAMA
@click.option("--name", default="", help="Model to use, if the settings have several.")
@click.option(
    "--tools",
    "files",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    multiple=True,
    help="Python file with functions to use as tools; may be repeated.",
)
@click.option("--instructions", default="", help="System prompt.")
@click.option("--thoughts", is_flag=True, help="Show the reasoning of the model.")
@_CONFIG
@_LOOK_AT
def chat(
    question: str,
    config: Path | None,
    *,
    files: tuple[Path, ...],
    thoughts: bool,
    look_at: tuple[str, ...],
    **flags: str | Path | None,
) -> None:
    """Chat with a model, with tools; Ctrl-D quits.

    With a QUESTION, print the answer and exit. Tools are the functions of Python files, and those
    of the tool servers in the settings. Repairs are shown in a dim line.
    """
    from proxy.cli.chat import ChatOptions, open_chat

    overrides = _backend_flags(flags)
    settings = load(config, overrides, level="critical")  # the chat itself shows errors
    options = ChatOptions(
        files=files,
        addresses=look_at,
        name=str(flags["name"]),
        instructions=str(flags["instructions"]),
        question=question,
        shows_reasoning=thoughts,
    )
    run(open_chat(settings, config, overrides, options), FAILED)


@main.command()
@click.argument("agent", type=click.Choice(tuple(AGENTS)))
@click.argument("arguments", nargs=-1, metavar="[-- ARGUMENTS]", type=click.UNPROCESSED)
@click.option("--backend-url", help="URL of a running server, e.g. http://127.0.0.1:9931.")
@click.option(
    "--model", type=click.Path(path_type=Path), help="GGUF file to start llama-server with."
)
@click.option("--hf", help="Hugging Face model to start, e.g. owner/name:Q4_K_M.")
@_OLLAMA
@click.option(
    "--context-tokens",
    type=int,
    help=f"Context window in tokens, with --model. Default: {LEAST_WINDOW}.",
)
@click.option("--name", default="", help="Model to use, if the server has several.")
@click.option("--print", "action", flag_value="print", help="Print the configuration only.")
@click.option(
    "--install",
    "action",
    flag_value="install",
    help="Write the configuration into the agent's own file.",
)
@click.option("--remove", "action", flag_value="remove", help="Undo --install.")
@_CONFIG
def launch(
    agent: str,
    arguments: tuple[str, ...],
    config: Path | None,
    *,
    name: str,
    action: str | None,
    context_tokens: int | None,
    **flags: str | Path | None,
) -> None:
    """Start a coding agent that uses a local model.

    Starts Temper and the model server as needed, configures the AGENT for this run only, and stops
    everything when it exits. ARGUMENTS after -- are passed to the agent.
    """
    overrides = _backend_flags(flags)
    overrides["ollama" if flags["ollama"] else "model"]["context_tokens"] = context_tokens
    settings = load(config, overrides, level="critical")
    default = type(settings.model).model_fields["context_tokens"].default
    if settings.model.source is not None and settings.model.context_tokens == default:
        context_tokens = context_tokens or LEAST_WINDOW  # the default is too small for an agent
    values = {**flags, "config": config, "context_tokens": context_tokens}
    options = [
        word
        for flag, value in values.items()
        if value is not None
        for word in (f"--{flag.replace('_', '-')}", str(value))
    ]
    if action == "remove":
        commands.remove_agent(agent)
    elif action is not None:
        run(commands.configure_agent(agent, settings, name, is_installed=action == "install"))
    else:
        run(commands.launch_agent(agent, settings, options, arguments, name=name))


@main.command()
@click.option(
    "--url", default="http://127.0.0.1:8367", show_default=True, help="URL of the running Temper."
)
# a file, not the key itself: other users of the machine can read command lines
@click.option("--key-file", type=click.Path(path_type=Path), help="File with the API key.")
def top(url: str, key_file: Path | None) -> None:
    """Show the requests of a running Temper; q quits."""
    configure_logging("text", "critical")  # log lines would overwrite the screen
    run(commands.watch(url, key_file))


@main.command()
@click.argument("file", type=click.Path(path_type=Path))
@_CONFIG
@_JSON
def replay(file: Path, config: Path | None, *, as_json: bool) -> None:
    """Replay a recording offline, and print differences (exit code 1).

    FILE is a recording (recording.path). The guardrails and profiles of this version process every
    recorded exchange again.
    """
    from proxy.observability.replay import document, replay_file, summary

    replayed = replay_file(file, load(config, level="warning").profile.folder)
    if as_json:
        commands.print_json(document(replayed))
    else:
        for line in summary(replayed):
            echo(line)
    sys.exit(FAILED if any(exchange.changes for exchange in replayed) else 0)


@main.command()
@_CONFIG
@_JSON
def check(config: Path | None, *, as_json: bool) -> None:
    """Check the settings and the files that they refer to."""
    from proxy.api.response_keeping import examine_keeping, examine_state
    from proxy.cli import configuration

    try:
        loaded = load_with_origins(config)
        if problems := [*configuration.problems_with_files(loaded)]:
            raise all_in_one(problems)
        examine_keeping(loaded.settings)
        examine_state(loaded.settings)
    except TemperError as error:
        fail(error, as_json=as_json, details={"problems": configuration.problems_document(error)})
    if as_json:
        commands.print_json(
            {
                "ok": True,
                "file": None if loaded.file is None else str(loaded.file),
                "problems": [],
                "settings": json.parse(loaded.settings.model_dump_json()),
            }
        )
        return
    echo(f"The configuration is valid. {configuration.describe_sources(loaded)}")


@main.command(name="config")
@click.option(
    "--defaults", is_flag=True, help="Print all settings with their defaults and descriptions."
)
@click.option(
    "--effective",
    is_flag=True,
    help="Print the effective settings and their sources (the default).",
)
@_CONFIG
@_JSON
def show_config(config: Path | None, *, defaults: bool, effective: bool, as_json: bool) -> None:
    """Print the settings; secrets are hidden."""
    from proxy.cli import configuration

    if defaults and effective:
        raise click.UsageError("--defaults and --effective cannot be combined. Remove one of them.")
    if defaults and not as_json:
        click.echo(configuration.example_file(), nl=False)
        return
    listed = configuration.effective(DEFAULT_SETTINGS if defaults else load_with_origins(config))
    if as_json:
        commands.print_json(
            {entry.name: {"value": entry.value, "origin": entry.origin} for entry in listed}
        )
    else:
        click.echo(configuration.as_toml(listed))
        for line in () if defaults else commands.list_tuned():
            echo(f"# lower precedence: {line}")


@main.group(invoke_without_command=True)
@_CONFIG
@_JSON
@click.pass_context
def tools(context: click.Context, config: Path | None, *, as_json: bool) -> None:
    """List the tools of MCP servers."""
    if context.invoked_subcommand is None:
        settings = load(config, level="critical")  # the list shows all problems
        run(commands.show_tools(settings, as_json=as_json), FAILED)


@tools.command()
@click.argument("tool")
@click.argument("arguments", default="{}")
@_CONFIG
@_JSON
def call(tool: str, arguments: str, config: Path | None, *, as_json: bool) -> None:
    """Call SERVER.TOOL with ARGUMENTS (a JSON object); exit code 1 on failure."""
    from proxy.dialects.raw_json import read_object

    settings, parsed = load(config, level="critical"), read_object(arguments.encode())
    run(commands.call_tool(settings, tool, parsed, as_json=as_json), FAILED)


@main.command(name="version")
@_JSON
def show_version(*, as_json: bool) -> None:
    """Print the versions of Temper, Python and the engine."""
    commands.show_version(as_json=as_json)


def _backend_flags(flags: Mapping[str, object]) -> Flags:
    """Translate the flags that select a server or model into settings."""
    return {
        "backend": {"url": flags["backend_url"], "kind": "ollama" if flags["ollama"] else None},
        "ollama": {"model": flags["ollama"]},
        "model": {"path": flags["model"], "hf_repo": flags.get("hf")},
    }
