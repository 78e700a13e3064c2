"""Prints for a terminal that foreign text cannot control: a model's id may hold escape sequences.

Every command prints through `echo` or a `SafeConsole`, whether the text is foreign or not, so that
no line has to be judged by itself. Where rich is not imported yet, use `echo`: rich takes 2 MB.
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
    """Print one line, or several if it `has_lines`, with everything else escaped."""
    shown = visible(text, has_lines=has_lines)
    click.echo(click.style(shown, **style) if style else shown, err=err, nl=nl)
