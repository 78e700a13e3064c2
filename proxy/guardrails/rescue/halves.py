"""The end of a reply that breaks off within a closing mark: nothing is lost by it."""

from proxy.guardrails.rescue.openings import LONGEST_CLOSER, STRAY_CLOSERS
from proxy.guardrails.rescue.values.cursor import Cursor, Waiting

_SHORTEST = 2


def is_half_closer(text: str) -> bool:
    """Whether a text is the beginning of a closing mark, and more than its first character."""
    return len(text) >= _SHORTEST and any(
        closer.startswith(text) and closer != text for closer in STRAY_CLOSERS
    )


def ends_here(cursor: Cursor) -> Waiting[bool]:
    """Return whether the text ends here, or within a closing mark that begins here."""
    while True:
        rest, is_all = cursor.glimpse(LONGEST_CLOSER)
        if is_all and rest:
            return is_half_closer(rest)
        if is_all:
            return True
        if rest and not any(closer.startswith(rest) for closer in STRAY_CLOSERS):
            return False
        yield
