"""Prints text with escaped control characters: a model id may contain terminal sequences.

Commands print everything with `echo` or a `SafeConsole`, including constant text, so that no
untrusted text is printed by mistake. Use `echo` where rich is not imported yet: rich takes 2 MB.
"""

from typing import TypedDict, Unpack

import click

from proxy.observability.sentences import visible


class Style(TypedDict, total=False):
    """Keyword arguments of `click.style`."""

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
    """Print escaped text; with `has_lines`, line breaks are printed unchanged."""
    shown = visible(text, has_lines=has_lines)
    click.echo(click.style(shown, **style) if style else shown, err=err, nl=nl)
