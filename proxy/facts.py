"""What happened to a request, as data: all that logs, metrics and headers ever see."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Asked:
    """A question was put to the backend; `rung` names its place on the ladder of attempts."""

    rung: str


@dataclass(frozen=True, slots=True)
class Rescued:
    """A call that was text became a call."""

    syntax: str
    tool: str


@dataclass(frozen=True, slots=True)
class Refused:
    """Text that looked like a call was left alone; `reason` is a word from a closed list."""

    reason: str


@dataclass(frozen=True, slots=True)
class Repaired:
    """Broken JSON in a call's arguments was read as what it plainly meant."""

    tool: str


@dataclass(frozen=True, slots=True)
class Coerced:
    """A value of the wrong type was converted without loss; `pointer` is a JSON pointer."""

    tool: str
    pointer: str


@dataclass(frozen=True, slots=True)
class Renamed:
    """A near-miss tool name was matched to the only tool it can mean."""

    written: str
    tool: str


@dataclass(frozen=True, slots=True)
class Dropped:
    """A part of the reply was not passed on; `what` is a word from a closed list."""

    what: str


@dataclass(frozen=True, slots=True)
class Unchecked:
    """A tool's schema could not be compiled, so its arguments were not checked."""

    tool: str
    problem: str


@dataclass(frozen=True, slots=True)
class Healed:
    """Something broken in the incoming request was mended; `what` is a word from a closed list."""

    what: str


@dataclass(frozen=True, slots=True)
class LoopNoticed:
    """The history ends in the same call with the same result, `times` times in a row."""

    tool: str
    times: int


@dataclass(frozen=True, slots=True)
class RoundsExceeded:
    """The model has called tools for too many rounds and was asked for an answer instead."""

    rounds: int


@dataclass(frozen=True, slots=True)
class RejectedReply:
    """A reply was not good enough; `defect` is a word from a closed list."""

    defect: str


@dataclass(frozen=True, slots=True)
class Withheld:
    """Another attempt was due, but too many other requests are being asked again already."""


@dataclass(frozen=True, slots=True)
class LadderEnded:
    """No further attempt was allowed; the client got the most faithful reply there was."""

    defect: str


Fact: TypeAlias = (
    Asked
    | Rescued
    | Refused
    | Repaired
    | Coerced
    | Renamed
    | Dropped
    | Unchecked
    | Healed
    | LoopNoticed
    | RoundsExceeded
    | RejectedReply
    | Withheld
    | LadderEnded
)


class Outcome(Enum):
    """How much had to be done for a reply, from nothing to too much."""

    CLEAN = "clean"
    REPAIRED = "repaired"
    RETRIED = "retried"
    EXHAUSTED = "exhausted"


def attempts(facts: Iterable[Fact]) -> int:
    """Count the generations that were asked for."""
    return sum(isinstance(fact, Asked) for fact in facts)


def outcome(facts: Iterable[Fact]) -> Outcome:
    """Tell how a request ended, in one word."""
    kinds = [type(fact) for fact in facts]
    if LadderEnded in kinds:
        return Outcome.EXHAUSTED
    if kinds.count(Asked) > 1:
        return Outcome.RETRIED
    if any(kind in kinds for kind in (Rescued, Repaired, Coerced, Renamed, Dropped)):
        return Outcome.REPAIRED
    return Outcome.CLEAN


def repairs(facts: Iterable[Fact]) -> str:
    """List what was wrong and mended, e.g. `rescued=hermes;rejected=prose;coerced=2`, or nothing.

    Syntaxes and defects are named, everything else is counted.
    """
    named: dict[str, list[str]] = {}
    counted: dict[str, int] = {}
    for fact in facts:
        match fact:
            case Rescued(name):
                named.setdefault("rescued", []).append(name)
            case RejectedReply(name):
                named.setdefault("rejected", []).append(name)
            case (Repaired() | Coerced() | Renamed() | Dropped()) | (
                Unchecked() | Refused() | Healed() | Withheld()
            ):
                word = type(fact).__name__.lower()
                counted[word] = counted.get(word, 0) + 1
            case _:
                pass
    parts = [f"{word}={','.join(dict.fromkeys(names))}" for word, names in named.items()]
    return ";".join(parts + [f"{word}={count}" for word, count in counted.items()])


def report(facts: Iterable[Fact]) -> dict[str, str]:
    """Return what a client is told: `attempts`, `outcome` and, where there were any, `repairs`."""
    happened = tuple(facts)
    told = {"attempts": str(attempts(happened)), "outcome": outcome(happened).value}
    done = repairs(happened)
    return {**told, "repairs": done} if done else told
