"""`temper tools`: what MCP servers in the settings offer, and one call to try them."""

from pathlib import Path

import click

from proxy.cli.commands import Work, print_json
from proxy.cli.running import FAILED, fail, load, run
from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.dialects.raw_json import read_object
from proxy.errors import TemperError
from proxy.observability.logs import configure_logging
from proxy.settings import Settings

_LONGEST_DESCRIPTION = 70

_CONFIG = click.option(
    "--config",
    type=click.Path(path_type=Path),
    help="Settings file; default: temper.toml in this folder, if there is one.",
)
_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")


@click.group(invoke_without_command=True)
@_CONFIG
@_JSON
@click.pass_context
def tools(context: click.Context, config: Path | None, *, as_json: bool) -> None:
    """List the tools of MCP servers."""
    if context.invoked_subcommand is not None:
        return
    settings = load(config, {}, as_json=as_json)
    configure_logging(settings.logging.format, "critical")  # the list says it all
    run(show_tools(settings, as_json=as_json), as_json=as_json, otherwise=FAILED)


@tools.command()
@click.argument("tool")
@click.argument("arguments", default="{}")
@_CONFIG
@_JSON
def call(tool: str, arguments: str, config: Path | None, *, as_json: bool) -> None:
    """Call SERVER.TOOL once, with ARGUMENTS as a JSON object; 1 if it failed."""
    settings = load(config, {}, as_json=as_json)
    configure_logging(settings.logging.format, "critical")
    try:
        given = read_object(arguments.encode())
    except TemperError as error:
        fail(error, as_json=as_json)
    calling = call_tool(settings, tool, given, as_json=as_json)
    run(calling, as_json=as_json, otherwise=FAILED)


def show_tools(settings: Settings, *, as_json: bool) -> Work:
    """Print the tool servers with their tools; reports whether all are ready."""
    from proxy.serving.tool_inventory import inspect_servers

    async def work() -> bool:
        found = await inspect_servers(settings)
        if as_json:
            print_json({"servers": [one.document() for one in found]})
        for one in () if as_json else found:
            click.echo(click.style(one.spec.name, bold=True) + f"  {one.state} {one.protocol}")
            for tool in one.definitions:
                mark = one.offer_of(tool.name)
                said = tool.description.partition("\n")[0][:_LONGEST_DESCRIPTION]
                click.echo(f"  {tool.name}  ({mark})  {said}")
            for warning in (one.problem, *one.warnings):
                if warning:
                    click.echo(f"  ! it {warning}")
            if one.definitions:
                click.echo(f"  digest = {json.dump_text(one.digest)}")
        return all(one.state == "ready" for one in found)

    return work()


def call_tool(settings: Settings, target: str, arguments: JsonObject, *, as_json: bool) -> Work:
    """Call a tool once and print its result; reports whether it succeeded."""
    from proxy.serving.tool_inventory import call_once

    async def work() -> bool:
        text, is_done = await call_once(settings, target, arguments)
        if as_json:
            print_json({"ok": is_done, "result": text})
        else:
            click.echo(text)
        return is_done

    return work()
