"""Detects growth in a series of samples. Pure functions.

The run is divided into fifths. The first fifth is warm-up: caches fill, and the heap grows to the
size that the largest requests need. After that, nothing may grow: the median of the last fifth is
compared with the median of the second fifth. A median ignores the few samples during a flood. The
centers of the two fifths are three fifths of the run apart, so in 10,000 requests a leak of 1 kB
per request adds 6 MB.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

_PARTS = 5

MOST_MEMORY_MB = 4.0
MOST_DESCRIPTORS = 20.0


@dataclass(frozen=True, slots=True)
class Sample:
    """The resource usage of a server, `second` seconds after the start of the run."""

    second: float
    memory_mb: float
    descriptors: int


@dataclass(frozen=True, slots=True)
class Flatness:
    """Medians of the second and the last fifth, and the permitted growth."""

    second_fifth: float
    last_fifth: float
    most: float

    @property
    def is_flat(self) -> bool:
        """True if the growth is within the permitted limit."""
        return self.last_fifth - self.second_fifth <= self.most


def flatness(values: Sequence[float], most: float) -> Flatness | None:
    """Compare the fifths of a series; None for fewer than five values."""
    fifth = len(values) // _PARTS
    if not fifth:
        return None
    return Flatness(median(values[fifth : 2 * fifth]), median(values[-fifth:]), most)


def of_memory(samples: Sequence[Sample]) -> Flatness | None:
    """Compare the memory of the second and the last fifth."""
    return flatness([sample.memory_mb for sample in samples], MOST_MEMORY_MB)


def of_descriptors(samples: Sequence[Sample]) -> Flatness | None:
    """Compare the open descriptors; requests in progress may add up to `MOST_DESCRIPTORS`."""
    return flatness([sample.descriptors for sample in samples], MOST_DESCRIPTORS)
