"""Virtual time and seeded randomness for the whole process; import this before `proxy`.

`time.monotonic` and `time.time` return the virtual time. `os.urandom`, on which `secrets` and
`uuid4` are based, is seeded, so that a seed gives the same ids every time.
"""

import os
import random
import time

_EPOCH = 1_800_000_000.0  # a Unix time


class Clock:
    """The virtual time in seconds since the start of a simulation."""

    def __init__(self) -> None:
        self.now = 0.0
        self.chance = random.Random(0)

    def restart(self, seed: int) -> None:
        self.now = 0.0
        self.chance.seed(f"ids/{seed}")

    def monotonic(self) -> float:
        return self.now

    def unix(self) -> float:
        return _EPOCH + self.now

    def urandom(self, size: int) -> bytes:
        return self.chance.randbytes(size)


CLOCK = Clock()


def install() -> None:
    """Replace the clocks and the random source of this process."""
    time.monotonic = CLOCK.monotonic
    time.time = CLOCK.unix
    os.urandom = CLOCK.urandom
    random._urandom = CLOCK.urandom  # type: ignore[attr-defined] # noqa: SLF001 - used by SystemRandom
