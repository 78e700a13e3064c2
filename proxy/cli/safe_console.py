"""A rich console that escapes control characters and disables markup.

By default, rich prints escape sequences unchanged and interprets `[red]` in any text as a style.
This console keeps line breaks in a text. A name must not contain any, so callers escape names with
`visible`.
"""

from collections.abc import Iterable
from typing import TextIO

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from proxy.observability.sentences import visible


class SafeConsole(Console):
    """Prints renderables that may contain untrusted text; markup inside that text has no effect."""

    def __init__(
        self,
        *,
        stderr: bool = False,
        file: TextIO | None = None,
        width: int | None = None,
        quiet: bool = False,
        soft_wrap: bool = False,
    ) -> None:
        super().__init__(
            stderr=stderr,
            file=file,
            width=width,
            quiet=quiet,
            soft_wrap=soft_wrap,
            highlight=False,
            markup=False,
            emoji=False,
        )

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Yield the segments of a renderable; text is escaped, control segments are not."""
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else visible(text, has_lines=True), style, control)
