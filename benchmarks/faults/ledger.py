"""The backend's ledger: the start and the end of each generation.

Times are from the machine's monotonic clock, which all processes share.
"""

from collections.abc import Iterator

import msgspec

LONGEST_OUTLIVING = 2.0  # seconds that a generation may outlive its client


class Generation(msgspec.Struct):
    """One generation; `ended` is 0 while it runs."""

    begun: float
    ended: float = 0.0


class Ledger(msgspec.Struct):
    """The generations of each request, and the number of open connections."""

    generations: dict[int, list[Generation]] = {}
    connections: int = 0

    @property
    def playing(self) -> int:
        """The number of generations that have not ended."""
        return sum(not each.ended for listed in self.generations.values() for each in listed)

    def outlived(self, number: int, over: float) -> float:
        """Return the seconds that a generation continued after its request ended at `over`."""
        return max((each.ended - over for each in self.generations_of(number)), default=0.0)

    def generations_of(self, number: int) -> list[Generation]:
        return self.generations.get(number, [])

    def problems(self, number: int, over: float, attempts: int) -> Iterator[str]:
        """Yield the problems of a request; `attempts` is the permitted number of generations."""
        count = len(self.generations_of(number))
        if count > attempts:
            yield f"{count} generations, at most {attempts} are permitted"
        outlived = self.outlived(number, over)
        if outlived > LONGEST_OUTLIVING:
            yield f"a generation outlived its client by {outlived:.1f} s"
