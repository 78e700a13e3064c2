"""A sequential test of paired runs: Wald's probability ratio on the pairs that differ.

Two ways to run the same case differ where one is right and the other wrong. The test decides
between shares of help among such pairs: at most `EVEN`, or at least `BETTER`. It looks after each
pair, and ends as soon as it is decided. A setting that changes next to nothing is not earned.
The same test with the sides changed decides whether a cheaper way loses anything.
"""

import math
from dataclasses import dataclass
from enum import Enum

EVEN, BETTER = 0.5, 0.8
FALSE_ON, FALSE_OFF = 0.05, 0.10  # by Wald's bounds neither is exceeded by more than their product
RARE = 0.02  # of all pairs: what differs less often is not worth its price

_HELP = math.log(BETTER / EVEN)
_HARM = math.log((1 - BETTER) / (1 - EVEN))
_ON = math.log((1 - FALSE_OFF) / FALSE_ON)
_OFF = math.log(FALSE_OFF / (1 - FALSE_ON))


class Decision(Enum):
    """What a comparison came to."""

    ON = "on"
    OFF = "off"
    UNDECIDED = "undecided"


@dataclass(slots=True)
class SequentialTest:
    """Pairs so far, and what follows from them."""

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
        """Whether it harms as a setting has to help to be earned; None as long as nobody knows.

        It does not where no fewer pairs helped, nor where it is shown that next to none differ.
        """
        turned = self.helped * _HARM + self.harmed * _HELP
        if turned >= -_OFF:
            return True
        is_kept = turned <= -_ON and self.helped >= self.harmed
        return False if is_kept or self.is_rare else None

    @property
    def is_rare(self) -> bool:
        """Whether it is shown that so few pairs differ that the setting is not worth its price."""
        return self._is_rare_after(self.pairs)

    def _is_rare_after(self, pairs: int) -> bool:
        """Return whether it is shown where so many pairs have no more that differ than now."""
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
