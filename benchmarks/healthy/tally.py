"""Counts and times of healthy replies: changes, generations, and the time that Temper adds.

All times are differences between the percentiles of the two sides of a comparison: direct, and
through Temper. A rule may hold a delta back until later deltas have shown that it is valid (see
`holding`). Temper's speed has no influence on this time, so the figures distinguish:

    delay            from the sending of a delta to its arrival
    late             from the sending of the delta that releases it to its arrival
    held             the number of deltas from a delta to the one that releases it
    first_argument   `late` of the first delta of the arguments

Pure functions.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from benchmarks.healthy import comparison
from benchmarks.healthy.client import ClientResponse
from benchmarks.healthy.holding import releases
from benchmarks.healthy.ledger import ReceivedRequest
from benchmarks.healthy.replies import KINDS, ReplyChoice
from benchmarks.load.figures import Figures, percentile

DIRECT, THROUGH = "direct", "temper"
WAYS = {"streamed": True, "whole": False}
# Text policies with their headers; the default needs no header.
POLICIES: dict[str, Mapping[str, str]] = {
    "auto": {},
    **{name: {"x-temper-text-policy": name} for name in ("accept", "respond", "require")},
}
_TIMES = ("first_content", "first_argument", "delay", "late", "total")
_HELD_COUNTS = ("held", "first_argument_held")
_SUMMED_COUNTS = ("changed", "prompts")
TIMED = (
    *(f"{name}_p{percent}" for name in (*_TIMES, *_HELD_COUNTS) for percent in (50, 99)),
    "generations",
    *_SUMMED_COUNTS,
)
_ARGUMENTS = "arguments"
_MS = 1000
_MOST_PROBLEMS = 3


@dataclass(frozen=True, slots=True)
class Pair:
    """The direct response for a reply, and the response through Temper."""

    choice: ReplyChoice
    direct: ClientResponse
    through: ClientResponse


@dataclass(slots=True)
class Batch:
    """All replies of a kind, streamed or not, and the backend's ledger of their requests."""

    pairs: list[Pair] = field(default_factory=list)
    ledger: dict[str, list[ReceivedRequest]] = field(default_factory=dict)

    def received(self, pair: Pair, side: str) -> list[ReceivedRequest]:
        return self.ledger.get(pair.choice.named(side), [])


def count_changes(batch: Batch) -> Figures:
    """Count all replies, changed replies, retried replies, and changed prompts."""
    upstream = [batch.received(pair, THROUGH) for pair in batch.pairs]
    changed = [comparison.difference(pair.direct, pair.through) for pair in batch.pairs]
    return {
        "replies": len(batch.pairs),
        "changed": sum(map(bool, changed)),
        "again": sum(len(received) > 1 for received in upstream),
        "generations": sum(map(len, upstream)),
        "prompts": sum(map(bool, prompt_differences(batch))),
    }


def prompt_differences(batch: Batch) -> Iterator[str]:
    """Yield for each pair the difference between the first prompts; "" if there is none."""
    for pair in batch.pairs:
        sent, received = (batch.received(pair, side) for side in (DIRECT, THROUGH))
        if sent and received:
            mark = pair.choice.named(DIRECT).encode(), pair.choice.named(THROUGH).encode()
            yield comparison.prompt_difference(sent[0].body.replace(*mark), received[0])
        else:
            yield "no request arrived"


def problems_of(name: str, batch: Batch) -> list[str]:
    """Return the first distinct differences of a batch."""
    problems = [comparison.difference(pair.direct, pair.through) for pair in batch.pairs]
    problems += prompt_differences(batch)
    return [f"{name}: {problem}" for problem in dict.fromkeys(filter(None, problems))][
        :_MOST_PROBLEMS
    ]


def measure_times(batch: Batch) -> Figures:
    """Return the time that Temper added, in ms, and the generations per answer."""
    good = [pair for pair in batch.pairs if not pair.direct.problem and not pair.through.problem]
    readings: dict[str, Callable[[Pair, str], Iterable[float]]] = {
        "total": lambda pair, side: (_response_of(pair, side).total,),
        "first_content": lambda pair, side: _first(pair, side, "text"),
        "first_argument": lambda pair, side: _first_argument(batch, pair, side),
        "delay": lambda pair, side: _delays(batch, pair, side),
        "late": lambda pair, side: _delays(batch, pair, side, is_held=side == THROUGH),
    }
    figures: Figures = {}
    for name, read in readings.items():
        direct, through = (
            [value for pair in good for value in read(pair, side)] for side in (DIRECT, THROUGH)
        )
        for percent in (50, 99) if direct and through else ():
            added = percentile(through, percent) - percentile(direct, percent)
            figures[f"{name}_p{percent}"] = _MS * added
    streamed = [pair for pair in good if pair.choice.is_streamed]
    for name, read_held in zip(_HELD_COUNTS, (_held, _first_held), strict=True):
        held = [count for pair in streamed for count in read_held(pair)]
        for percent in (50, 99) if held else ():
            figures[f"{name}_p{percent}"] = percentile(held, percent)
    counts = count_changes(batch)
    figures |= {"changed": counts["changed"], "prompts": counts["prompts"]}
    return figures | {"generations": counts["generations"] / max(1, len(batch.pairs))}


def _response_of(pair: Pair, side: str) -> ClientResponse:
    return pair.direct if side == DIRECT else pair.through


def _first(pair: Pair, side: str, channel: str) -> Iterator[float]:
    first = _response_of(pair, side).first(channel)
    if pair.choice.is_streamed and first is not None:
        yield first


def _first_argument(batch: Batch, pair: Pair, side: str) -> Iterator[float]:
    """Yield the seconds that the first byte of arguments took, if there is such a byte.

    They begin when the delta that releases the byte is sent. On the direct side, each delta is
    released when it is sent.
    """
    response, received = _response_of(pair, side), batch.received(pair, side)
    first, index = response.first(_ARGUMENTS), _first_argument_index(pair)
    if not pair.choice.is_streamed or first is None or index is None or not received:
        return
    if side == THROUGH:
        index = releases(pair.choice.kind, pair.choice.number)[index]
    if index < len(received[0].sent):
        yield response.sent_at + first - received[0].sent[index]


def _first_argument_index(pair: Pair) -> int | None:
    """Return the index of the first delta that has arguments; None if there is none."""
    deltas = KINDS[pair.choice.kind](pair.choice.number).deltas
    indexes = (at for at, delta in enumerate(deltas) if delta.channel.startswith(_ARGUMENTS))
    return next(indexes, None)


def _delays(batch: Batch, pair: Pair, side: str, *, is_held: bool = False) -> Iterator[float]:
    """Yield the delay of each delta, counted from the first upstream request."""
    received = batch.received(pair, side)
    if pair.choice.is_streamed and received:
        kind, number = pair.choice.kind, pair.choice.number
        indexes = releases(kind, number) if is_held else ()
        yield from comparison.delays(
            _response_of(pair, side), received[0], KINDS[kind](number).deltas, indexes
        )


def _held(pair: Pair) -> Iterator[int]:
    """Yield for each delta the number of later deltas that the rules wait for."""
    for index, released_at in enumerate(releases(pair.choice.kind, pair.choice.number)):
        yield released_at - index


def _first_held(pair: Pair) -> Iterator[int]:
    """If there are arguments, yield how many deltas their first delta waits for."""
    index = _first_argument_index(pair)
    if index is not None:
        yield releases(pair.choice.kind, pair.choice.number)[index] - index


def timed_name(kind: str, way: str, figure: str) -> str:
    return f"{kind} ({way}): {figure}"


def counted_name(policy: str, kind: str, figure: str) -> str:
    return f"{policy}: {kind}: {figure}"


def worst(figures: Figures) -> Figures:
    """Return for each figure the largest value of all kinds; changed replies are added up."""
    figures_of_worst: Figures = {}
    for figure in TIMED:
        names = (timed_name(kind, way, figure) for kind in KINDS for way in WAYS)
        values = [figures[name] for name in names if name in figures]
        if values:
            figures_of_worst[figure] = sum(values) if figure in _SUMMED_COUNTS else max(values)
    return figures_of_worst
