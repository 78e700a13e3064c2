"""Command classes: loading, grouped help, suggestions for typos, and error handling."""

import difflib
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar

import click

from proxy.cli.running import fail
from proxy.errors import TemperError

_GROUP = "temper.commands"  # the group of entry points in pyproject.toml
_MISSING = (
    "'temper {}' requires the package temper_evals. Install it with: pip install temper-proxy"
)

# minimum similarity for a suggestion; stricter than click, which also suggests flags that are
# hardly similar
_NEAR = 0.7


class Command(click.Command):
    """A command with better suggestions for typos, and uniform error output."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            flags = [flag for parameter in self.get_params(ctx) for flag in parameter.opts]
            similar = difflib.get_close_matches(error.option_name, flags, 1, _NEAR)
            raise click.NoSuchOption(error.option_name, possibilities=similar, ctx=ctx) from None

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except TemperError as error:
            fail(error, as_json=ctx.params.get("as_json", False))


class Group(Command, click.Group):
    """A command with subcommands of the same class."""

    command_class = Command


class CommandGroup(Group):
    """The command `temper`; other packages add subcommands with entry points."""

    group_class = Group

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *_entry_points()})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command; if `proxy` does not define it, search the entry points."""
        command = super().get_command(ctx, cmd_name)
        if command is not None:
            return command
        if (entry_point := _entry_points().get(cmd_name)) is not None:
            command = entry_point.load()
            assert isinstance(command, click.Command), entry_point  # noqa: S101 - our pyproject.toml
            return command
        # these commands are entry points of temper_evals, which a checkout may lack (decision 0005)
        if cmd_name in ("demo", "eval", "tune"):
            raise click.UsageError(_MISSING.format(cmd_name), ctx)
        return None


@cache
def _entry_points() -> dict[str, EntryPoint]:
    """Return the commands of other packages by name; cached, because this takes milliseconds."""
    # a checkout may have commands that its installed metadata lacks
    points = (*_entry_points_of_checkout(), *entry_points(group=_GROUP))
    return {point.name: point for point in points if find_spec(point.module.partition(".")[0])}


def _entry_points_of_checkout() -> list[EntryPoint]:
    """Read entry points from pyproject.toml, for `python -m proxy` without installation."""
    project = Path(__file__).parents[2] / "pyproject.toml"
    if not project.is_file():
        return []
    groups = tomllib.loads(project.read_text(encoding="utf-8"))["project"]["entry-points"]
    return [EntryPoint(name, value, _GROUP) for name, value in groups[_GROUP].items()]


class ServeCommand(Command):
    """`temper serve`, whose many flags are shown in groups."""

    groups: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "Model": ("backend_urls", "model", "hf", "ollama"),
        "Model size": ("context_tokens", "slots", "budget"),
        "Address": ("host", "port", "like_ollama", "workers"),
        "Replies": ("text_policy", "strict"),
        "Output": ("log_format", "keep", "as_json"),
        "Settings": ("config", "watch"),
    }

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the flags by group; flags without a group come last."""
        lines = {
            parameter.name or "": line
            for parameter in self.get_params(ctx)
            if (line := parameter.get_help_record(ctx)) is not None
        }
        for title, names in self.groups.items():
            with formatter.section(title):
                formatter.write_dl([lines.pop(name) for name in names])
        with formatter.section("Other options"):
            formatter.write_dl([*lines.values()])
