"""A rough count of tokens that needs no tokenizer, for the short texts that compaction writes.

It counts too many rather than too few: every digit, sign and letter beyond ASCII is one.
"""

import re
from collections.abc import Generator
from functools import lru_cache

from proxy.conversation.possessive import possessive

ELLIPSIS = "…"

_ONE = "(?>[A-Za-z]{1,7}| {2,}|[^ A-Za-z])"
_PIECE = re.compile(_ONE)
_SLICE = 4_096  # pieces that are counted in one go, in less than a millisecond


def count_rough_tokens(text: str) -> int:
    """Count the tokens of a text, roughly and on the safe side."""
    return len(_PIECE.findall(text))


def count_gradually(text: str, most: int = _SLICE) -> Generator[None, None, int]:
    """Count the same, and yield behind so many tokens: whoever goes on may have let others run."""
    count = place = 0
    while found := _first(most, least=most).match(text, place):
        count += most
        place = found.end()
        yield
    return count + len(_PIECE.findall(text, place))


def clip(text: str, limit: int) -> str:
    """Return the start of a text: at most `limit` tokens, a sign of what is missing included."""
    if is_within(text, limit):
        return text
    return text[: _end(text, limit - 1)] + ELLIPSIS if limit > 0 else ""


def is_within(text: str, limit: int) -> bool:
    """Return whether a text has at most `limit` tokens; no more of it is looked at."""
    if len(text) <= limit:
        return True
    end = _end(text, limit)
    return text[end : end + 2] in ("", " ")


def _end(text: str, limit: int) -> int:
    found = _first(max(0, limit)).match(text)
    return found.end() if found else 0


@lru_cache
def _first(most: int, least: int = 0) -> re.Pattern[str]:
    """Write a pattern for the first tokens of a text; single blanks are none."""
    return re.compile(possessive(f"(?>{_ONE}| {_ONE}){{{least},{most}}}+"))


def clip_start(text: str, limit: int) -> str:
    """Return the end of a text: at most `limit` tokens."""
    # No piece is longer than seven characters but runs of blanks, which may be cut.
    nearby = text[-8 * limit :] if limit > 0 else ""
    surplus = count_rough_tokens(nearby) - limit
    if surplus <= 0:
        return nearby
    starts = [piece.start() for piece in _PIECE.finditer(nearby)]
    return nearby[starts[surplus] :]
