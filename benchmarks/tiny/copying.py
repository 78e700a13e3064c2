"""Pure copying, which comes first: without it values of several tokens are never learnt.

A row is a random text of tokens, and then pieces of it again; only what is to be copied counts.
"""

import random

Row = tuple[list[int], list[float]]

LENGTHS = (12, 16, 24)
_PIECE = (3, 7)


def draw_row(draw: random.Random, first: int, size: int) -> Row:
    """Draw a row of tokens from `first` up to `size`, and their weights; short ones teach most."""
    length = draw.choice(LENGTHS)
    original = [draw.randrange(first, size) for _ in range(draw.randint(4, length // 2))]
    tokens, weights = [*original], [0.0] * len(original)
    while len(tokens) < length:
        longest = min(draw.randint(*_PIECE), len(original))
        start = draw.randint(0, len(original) - longest)
        piece = original[start : start + longest]
        tokens += piece
        # nobody can guess where a piece begins
        weights += [0.0] + [1.0] * (len(piece) - 1)
    return tokens[:length], weights[:length]
