"""Whether something that was looked at again and again stayed the same: pure.

The run is cut into fifths. The first one warms up: caches fill, and the heap takes the size that
the largest requests need. After that nothing may grow, so the median of the last fifth is compared
with that of the second: between their middles lie three fifths of the run, and a median does not
see the few samples that were taken amid a flood. A leak of 1 kB in each of 10,000 requests is 6 MB.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

_PARTS = 5

MOST_MEMORY_MB = 4.0
MOST_DESCRIPTORS = 20.0


@dataclass(frozen=True, slots=True)
class Sample:
    """What a server used at a moment, in seconds since the beginning; memory in MB."""

    second: float
    memory_mb: float
    descriptors: int


@dataclass(frozen=True, slots=True)
class Flatness:
    """Medians of the second and of the last fifth, and by how much the latter may be more."""

    second_fifth: float
    last_fifth: float
    most: float

    @property
    def is_flat(self) -> bool:
        """Whether it did not grow by more than it may."""
        return self.last_fifth - self.second_fifth <= self.most


def flatness(values: Sequence[float], most: float) -> Flatness | None:
    """Compare the fifths of what was seen; None if that is too little to tell."""
    fifth = len(values) // _PARTS
    if not fifth:
        return None
    return Flatness(median(values[fifth : 2 * fifth]), median(values[-fifth:]), most)


def of_memory(samples: Sequence[Sample]) -> Flatness | None:
    """Return whether memory stayed flat."""
    return flatness([sample.memory_mb for sample in samples], MOST_MEMORY_MB)


def of_descriptors(samples: Sequence[Sample]) -> Flatness | None:
    """Return whether the number of open descriptors stayed flat, but for requests under way."""
    return flatness([sample.descriptors for sample in samples], MOST_DESCRIPTORS)
