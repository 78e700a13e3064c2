"""The backend's ledger: the begin and end of each generation, and which outlived its client.

Times are those of the machine's monotonic clock, which all processes share.
"""

from collections.abc import Iterator

import msgspec

LONGEST_OUTLIVING = 2.0  # seconds that a generation may outlive its client


class Generation(msgspec.Struct):
    """One generation; `ended` is 0 while it runs."""

    begun: float
    ended: float = 0.0


class Ledger(msgspec.Struct):
    """The generations of each request, and how many connections are open."""

    generations: dict[int, list[Generation]] = {}
    connections: int = 0

    @property
    def playing(self) -> int:
        """How many generations have not ended."""
        return sum(
            not generation.ended for made in self.generations.values() for generation in made
        )

    def outlived(self, number: int, over: float) -> float:
        """Return the seconds for which a generation outlived a request that ended at `over`."""
        return max((generation.ended - over for generation in self.made(number)), default=0.0)

    def made(self, number: int) -> list[Generation]:
        return self.generations.get(number, [])

    def problems(self, number: int, over: float, attempts: int) -> Iterator[str]:
        """Yield the problems of a request that may have cost at most `attempts` generations."""
        made = len(self.made(number))
        if made > attempts:
            yield f"{made} generations, at most {attempts} were due"
        outlived = self.outlived(number, over)
        if outlived > LONGEST_OUTLIVING:
            yield f"a generation outlived its client by {outlived:.1f} s"
