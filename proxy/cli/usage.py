"""How commands show their flags: in groups where there are many, with a near name for a typo."""

import difflib
from collections.abc import Mapping
from typing import ClassVar

import click

_NEAR = 0.7  # how alike two flags are of which one was meant; click proposes less likely ones too


class Command(click.Command):
    """A command that proposes a flag only where it is likely to be meant."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the command line."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            flags = [flag for one in self.get_params(ctx) for flag in one.opts]
            near = difflib.get_close_matches(error.option_name, flags, 1, _NEAR)
            raise click.NoSuchOption(error.option_name, possibilities=near, ctx=ctx) from None


class GroupedCommand(Command):
    """A command with so many flags that they stand in groups."""

    groups: ClassVar[Mapping[str, tuple[str, ...]]] = {}

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the flags, group by group; those of no group come last."""
        lines = {
            one.name or "": line
            for one in self.get_params(ctx)
            if (line := one.get_help_record(ctx)) is not None
        }
        for title, names in self.groups.items():
            with formatter.section(title):
                formatter.write_dl([lines.pop(name) for name in names])
        with formatter.section("Other options"):
            formatter.write_dl([*lines.values()])


class CommandGroup(click.Group):
    """Commands of the first kind, unless another is asked for."""

    command_class = Command


class ServeCommand(GroupedCommand):
    """The flags of `temper serve`."""

    groups: ClassVar = {
        "Model": ("backend_urls", "model", "hf", "ollama"),
        "Size of the model": ("context_tokens", "slots", "budget"),
        "Address": ("host", "port", "workers"),
        "Replies": ("text_policy", "strict"),
        "Output": ("log_format", "as_json"),
    }
