"""Random numbers that are equal in every arm for the same case, step and try.

A difference between arms is then an effect of the arms, not of chance.
"""

import hashlib
import random

# a hash instead of a generator, so that a number does not depend on the order of the draws
_SPAN = 2**64


def uniform(*key: str | int) -> float:
    """Return a number in [0, 1) that depends on the key alone."""
    digest = hashlib.blake2b("\x1f".join(map(str, key)).encode(), digest_size=8).digest()
    return int.from_bytes(digest) / _SPAN


def draws_of(*key: str | int) -> random.Random:
    """Return a generator that depends on the key alone."""
    return random.Random("\x1f".join(map(str, key)))  # noqa: S311 - not for secrets
