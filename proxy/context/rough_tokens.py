"""A rough token count without a tokenizer; it is the number of pieces of a text.

    "read 25 files"  ->  read, 2, 5, files

A piece is a digit, a sign, a letter outside ASCII, a run of blanks, or up to seven ASCII letters.
Most tokenizers produce fewer tokens, so the count is usually too high.
"""

import re
from collections.abc import Generator
from functools import lru_cache

from proxy.conversation.possessive import possessive

ELLIPSIS = "…"

_ANY_PIECE = "(?>[A-Za-z]{1,7}| {2,}|[^ A-Za-z])"
_PIECE = re.compile(_ANY_PIECE)
_SLICE = 4_096  # pieces; counting them takes less than a millisecond


def count_rough_tokens(text: str) -> int:
    """Return an estimate that is usually too high."""
    return len(_PIECE.findall(text))


def count_gradually(text: str, most: int = _SLICE) -> Generator[None, None, int]:
    """Like `count_rough_tokens`, but yield after every `most` tokens, so that other tasks run."""
    count = position = 0
    while match := _first(most, least=most).match(text, position):
        count += most
        position = match.end()
        yield
    return count + len(_PIECE.findall(text, position))


def clip(text: str, limit: int) -> str:
    """Return the start of a text: at most `limit` tokens, including an ellipsis if it is cut."""
    if is_within(text, limit):
        return text
    return text[: _end(text, limit - 1)] + ELLIPSIS if limit > 0 else ""


def is_within(text: str, limit: int) -> bool:
    """Return whether a text has at most `limit` tokens; stops reading after that many tokens."""
    if len(text) <= limit:
        return True
    end = _end(text, limit)
    return text[end : end + 2] in ("", " ")


def _end(text: str, limit: int) -> int:
    match = _first(max(0, limit)).match(text)
    return match.end() if match else 0


@lru_cache
def _first(most: int, least: int = 0) -> re.Pattern[str]:
    """Return a pattern for the first `least` to `most` tokens; a single blank is not a token."""
    return re.compile(possessive(f"(?>{_ANY_PIECE}| {_ANY_PIECE}){{{least},{most}}}+"))


def clip_start(text: str, limit: int) -> str:
    """Remove the start of a text, so that at most `limit` tokens remain."""
    # A token has at most seven characters and one blank before it. Only a run of blanks may be
    # longer, and it may be cut.
    nearby = text[-8 * limit :] if limit > 0 else ""
    surplus = count_rough_tokens(nearby) - limit
    if surplus <= 0:
        return nearby
    starts = [piece.start() for piece in _PIECE.finditer(nearby)]
    return nearby[starts[surplus] :]
