"""A sequential test of paired runs: Wald's probability ratio on the pairs that differ.

A pair runs the same case in two ways; it differs if one run is right and the other wrong. The test
decides between two shares of help among such pairs: at most `EVEN`, or at least `BETTER`. It is
evaluated after each pair, and ends at the first decision. A setting for which almost no pairs
differ is not earned. The test with exchanged sides decides whether a cheaper setting loses
anything.
"""

import math
from dataclasses import dataclass
from enum import Enum

# under EVEN a setting helps and harms alike; BETTER is four helped runs for one harmed
EVEN, BETTER = 0.5, 0.8
FALSE_ON, FALSE_OFF = 0.05, 0.10  # Wald's bounds exceed neither by more than their product
RARE = 0.02  # share of all pairs; a setting that changes fewer is not worth its price

_HELP = math.log(BETTER / EVEN)
_HARM = math.log((1 - BETTER) / (1 - EVEN))
_ON = math.log((1 - FALSE_OFF) / FALSE_ON)
_OFF = math.log(FALSE_OFF / (1 - FALSE_ON))


class Decision(Enum):
    """The decision of a comparison."""

    ON = "on"
    OFF = "off"
    UNDECIDED = "undecided"


@dataclass(slots=True)
class SequentialTest:
    """The counts of pairs so far, and the decisions that follow from them."""

    pairs: int = 0
    helped: int = 0
    harmed: int = 0

    def add(self, *, before: bool, after: bool) -> None:
        """Count a pair: whether the case was right without the setting, and with it."""
        self.pairs += 1
        self.helped += after and not before
        self.harmed += before and not after

    @property
    def evidence(self) -> float:
        """The logarithm of the probability ratio."""
        return self.helped * _HELP + self.harmed * _HARM

    @property
    def loses(self) -> bool | None:
        """Whether the setting harms as much as it would have to help to be earned; None if open.

        It does not if at least as many pairs helped as harmed and the test says so, or if almost no
        pairs differ.
        """
        turned = self.helped * _HARM + self.harmed * _HELP
        if turned >= -_OFF:
            return True
        is_kept = turned <= -_ON and self.helped >= self.harmed
        return False if is_kept or self.is_rare else None

    @property
    def is_rare(self) -> bool:
        """Whether so few pairs are shown to differ that the setting is not worth its price."""
        return self._is_rare_after(self.pairs)

    def _is_rare_after(self, pairs: int) -> bool:
        """Return whether that would be shown after `pairs` pairs without a further difference."""
        differing = self.helped + self.harmed
        if differing >= RARE * pairs:
            return False
        rest = 1 - RARE
        chances = (
            math.comb(pairs, count) * RARE**count * rest ** (pairs - count)
            for count in range(differing + 1)
        )
        return sum(chances) < FALSE_ON

    @property
    def decision(self) -> Decision:
        if self.evidence >= _ON:
            return Decision.ON
        return Decision.OFF if self.evidence <= _OFF or self.is_rare else Decision.UNDECIDED

    @property
    def missing(self) -> int:
        """Estimate how many more pairs it takes, if they are like those so far."""
        return self._missing((_HELP, _HARM), (_OFF, _ON))

    @property
    def missing_for_loss(self) -> int:
        """Estimate how many more pairs it takes to know whether it loses."""
        return self._missing((_HARM, _HELP), (-_ON, -_OFF))

    def _missing(self, weights: tuple[float, float], bounds: tuple[float, float]) -> int:
        differing = self.helped + self.harmed
        share = (self.helped + 0.5) / (differing + 1)
        drift = share * weights[0] + (1 - share) * weights[1]
        left = bounds[drift > 0] - self.helped * weights[0] - self.harmed * weights[1]
        rate = (differing + 0.5) / (self.pairs + 1)
        likely = max(1, math.ceil(left / drift / rate))
        without = next(
            (count for count in range(likely) if self._is_rare_after(self.pairs + count)), 0
        )
        return without or likely
