"""A rough count of tokens that needs no tokenizer, for the short texts that compaction writes.

It counts too many rather than too few: every digit, sign and letter beyond ASCII is one.
"""

import re

ELLIPSIS = "…"

_PIECE = re.compile(r"[A-Za-z]{1,7}| {2,}|[^ A-Za-z]")


def count_pieces(text: str) -> int:
    """Count the tokens of a text, roughly and on the safe side."""
    return len(_PIECE.findall(text))


def clip(text: str, limit: int) -> str:
    """Return the start of a text: at most `limit` tokens, a sign of what is missing included."""
    if len(text) <= limit:
        return text
    end = 0
    for number, piece in enumerate(_PIECE.finditer(text)):
        if number >= limit:
            return text[:end] + ELLIPSIS if limit > 0 else ""
        if number < limit - 1:
            end = piece.end()
    return text


def clip_start(text: str, limit: int) -> str:
    """Return the end of a text: at most `limit` tokens."""
    # No piece is longer than seven characters but runs of blanks, which may be cut.
    nearby = text[-8 * limit :] if limit > 0 else ""
    surplus = count_pieces(nearby) - limit
    if surplus <= 0:
        return nearby
    starts = [piece.start() for piece in _PIECE.finditer(nearby)]
    return nearby[starts[surplus] :]
