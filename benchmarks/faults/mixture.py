"""All faults, and the choice of a fault for a request."""

from itertools import accumulate

from benchmarks.faults import bad_replies, broken_backends, good_replies, rude_clients
from benchmarks.faults.material import Fault, Material, Plan

FAULTS: tuple[Fault, ...] = (
    *good_replies.FAULTS,
    *bad_replies.FAULTS,
    *broken_backends.FAULTS,
    *rude_clients.FAULTS,
)
_SHARES = tuple(accumulate(fault.share for fault in FAULTS))

# A run begins with two requests for each fault: one is streamed, the other is not.
ONE_OF_EACH = 2 * len(FAULTS)


def draw(seed: int, number: int) -> tuple[Fault, Plan]:
    """Draw the fault and the plan of a request; deterministic for a seed and a number."""
    if number < ONE_OF_EACH:
        fault = FAULTS[number // 2]
        return fault, fault.make(Material(seed, number, stream=number % 2 == 0))
    material = Material(seed, number)
    (fault,) = material.chance.choices(FAULTS, cum_weights=_SHARES)
    return fault, fault.make(material)
