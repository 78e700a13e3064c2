"""A sequential test of paired runs: Wald's probability ratio on the pairs that differ.

A pair is two runs of the same case, without and with a setting. It differs if one run is right and
the other wrong; the setting then helped or harmed. The test decides between two shares of helped
pairs among the pairs that differ: at most `EVEN`, or at least `BETTER`. It is evaluated after each
pair, and ends at the first decision. A setting for which almost no pairs differ stays off. With
help and harm exchanged, the same test decides whether a cheaper setting is worse.
"""

import math
from dataclasses import dataclass
from enum import Enum

# EVEN: as many helped as harmed pairs; BETTER: four helped pairs for each harmed pair
EVEN, BETTER = 0.5, 0.8
# error rates of the decisions; with Wald's bounds, the real rates are hardly higher
FALSE_ON, FALSE_OFF = 0.05, 0.10
RARE = 0.02  # a setting that changes a smaller share of all pairs is not worth its price

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
        """Count a pair; `before` is the result without the setting, `after` with the setting."""
        self.pairs += 1
        self.helped += after and not before
        self.harmed += before and not after

    @property
    def evidence(self) -> float:
        """The logarithm of the probability ratio."""
        return self.helped * _HELP + self.harmed * _HARM

    @property
    def loses(self) -> bool | None:
        """True if the setting is worse, False if it is not, None if undecided.

        To decide this, help and harm are exchanged in the test. The setting is worse if the
        exchanged test would turn it on. It is not worse if almost no pairs differ. It is also not
        worse if the exchanged test would turn it off, and at least as many pairs helped as harmed.
        """
        exchanged = self.helped * _HARM + self.harmed * _HELP
        if exchanged >= -_OFF:
            return True
        is_not_worse = exchanged <= -_ON and self.helped >= self.harmed
        return False if is_not_worse or self.is_rare else None

    @property
    def is_rare(self) -> bool:
        """True if the share of pairs that differ is significantly below `RARE`."""
        return self._is_rare_after(self.pairs)

    def _is_rare_after(self, pairs: int) -> bool:
        """Return whether `is_rare` would hold after `pairs` pairs if no further pair differed."""
        differing = self.helped + self.harmed
        if differing >= RARE * pairs:
            return False
        chances = (
            math.comb(pairs, count) * RARE**count * (1 - RARE) ** (pairs - count)
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
        """Estimate the number of further pairs until a decision, at the observed rates."""
        return self._missing((_HELP, _HARM), (_OFF, _ON))

    @property
    def missing_for_loss(self) -> int:
        """Estimate the number of further pairs until `loses` is decided."""
        return self._missing((_HARM, _HELP), (-_ON, -_OFF))

    def _missing(self, weights: tuple[float, float], bounds: tuple[float, float]) -> int:
        differing = self.helped + self.harmed
        share = (self.helped + 0.5) / (differing + 1)
        drift = share * weights[0] + (1 - share) * weights[1]
        distance = bounds[drift > 0] - self.helped * weights[0] - self.harmed * weights[1]
        rate = (differing + 0.5) / (self.pairs + 1)
        until_bound = max(1, math.ceil(distance / drift / rate))
        until_rare = next(
            (count for count in range(until_bound) if self._is_rare_after(self.pairs + count)), 0
        )
        return until_rare or until_bound
