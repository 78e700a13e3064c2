"""Printing that escapes foreign text: a model id, for example, may contain escape sequences.

Every command prints with `echo` or a `SafeConsole`, even its own text, so that no line is missed.
Use `echo` where rich is not imported yet: rich takes 2 MB.
"""

from typing import TypedDict, Unpack

import click

from proxy.observability.sentences import visible


class Style(TypedDict, total=False):
    """Styles of click."""

    fg: str
    bold: bool
    dim: bool | None


def echo(
    text: str = "",
    *,
    err: bool = False,
    nl: bool = True,
    has_lines: bool = False,
    **style: Unpack[Style],
) -> None:
    """Print a line, or several if it `has_lines`; other control characters are escaped."""
    shown = visible(text, has_lines=has_lines)
    click.echo(click.style(shown, **style) if style else shown, err=err, nl=nl)
