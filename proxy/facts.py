"""What happened to a request, as data: all that logs, metrics and headers ever see."""

from collections.abc import Iterable
from enum import Enum
from typing import TypeAlias

import msgspec


class Asked(msgspec.Struct, frozen=True):
    """A question was put to the backend; `kind` names its place on the ladder of attempts."""

    kind: str


class Rescued(msgspec.Struct, frozen=True):
    """A call that was text became a call."""

    syntax: str
    tool: str


class Refused(msgspec.Struct, frozen=True):
    """Text that looked like a call was left alone; `reason` is a word from a closed list."""

    reason: str


class Repaired(msgspec.Struct, frozen=True):
    """Broken JSON in a call's arguments was read as what it plainly meant."""

    tool: str


class Coerced(msgspec.Struct, frozen=True):
    """A value of the wrong type was converted without loss; `pointer` is a JSON pointer."""

    tool: str
    pointer: str


class Renamed(msgspec.Struct, frozen=True):
    """A near-miss tool name was matched to the only tool it can mean."""

    written: str
    tool: str


class Dropped(msgspec.Struct, frozen=True):
    """A part of the reply was not passed on; `what` is a word from a closed list."""

    what: str


class Unchecked(msgspec.Struct, frozen=True):
    """A tool's schema, or a type in it, is unusable, so its arguments were not checked for it."""

    tool: str
    problem: str


class Healed(msgspec.Struct, frozen=True):
    """Something broken in the incoming request was mended; `what` is a word from a closed list."""

    what: str


class Omitted(msgspec.Struct, frozen=True):
    """A part of the incoming request means nothing here; `what` is a word from a closed list."""

    what: str


class RuleSkipped(msgspec.Struct, frozen=True):
    """A rule of order was left out, as it waits for a `tool` that the request does not offer."""

    tool: str


class LoopNoticed(msgspec.Struct, frozen=True):
    """The history ends in the same call with the same result, `times` times in a row."""

    tool: str
    times: int


class RoundsExceeded(msgspec.Struct, frozen=True):
    """The model has called tools for too many rounds and was asked for an answer instead."""

    rounds: int


class FailuresNoticed(msgspec.Struct, frozen=True):
    """The history ends in `rounds` rounds of tool calls that all failed."""

    rounds: int


class RejectedReply(msgspec.Struct, frozen=True):
    """A reply was not good enough; `defect` is a word from a closed list."""

    defect: str


class Withheld(msgspec.Struct, frozen=True):
    """Another attempt was due, but too many other requests are being asked again already."""


class BrokeOff(msgspec.Struct, frozen=True):
    """A call of this tool that the client had seen the beginning of never became a valid one."""

    tool: str


class LadderEnded(msgspec.Struct, frozen=True):
    """No further attempt was allowed; the client got the most faithful reply there was."""

    defect: str


class Compacted(msgspec.Struct, frozen=True):
    """How a conversation goes out; tier 0 means that nothing was changed.

    `sent` and `client` are the prompt's tokens as it is sent and as the client wrote it, in a
    `window` of so many. `cleared` results stand shortened in it, `folded` groups and turns only in
    the digest. `epoch` counts the cuts so far; `is_new` reports that this request made the last
    one. `answer` is what is left of the window for the answer where that is less than was to be
    kept, because nothing more could be shortened; None where enough is left.
    """

    tier: int
    cleared: int
    folded: int
    epoch: int
    sent: int
    client: int
    window: int
    is_new: bool = False
    answer: int | None = None

    def __str__(self) -> str:
        tight = "" if self.answer is None else f"; answer={self.answer}"
        return (
            f"n_ctx={self.window}; sent={self.sent}; client={self.client}; tier={self.tier}; "
            f"cleared={self.cleared}; folded={self.folded}; epoch={self.epoch}{tight}"
        )


class WindowFilled(msgspec.Struct, frozen=True):
    """The answer ended because the window of so many tokens was full."""

    window: int


class ToolRan(msgspec.Struct, frozen=True):
    """A tool of the operator was called, in the round of that number; `status` is how it ended."""

    server: str
    tool: str
    status: str
    round: int


Fact: TypeAlias = (
    Compacted
    | WindowFilled
    | Asked
    | Rescued
    | Refused
    | Repaired
    | Coerced
    | Renamed
    | Dropped
    | Unchecked
    | Healed
    | Omitted
    | RuleSkipped
    | LoopNoticed
    | RoundsExceeded
    | FailuresNoticed
    | RejectedReply
    | Withheld
    | LadderEnded
    | BrokeOff
    | ToolRan
)


class Outcome(Enum):
    """How much had to be done for a reply, from nothing to too much."""

    CLEAN = "clean"
    REPAIRED = "repaired"
    RETRIED = "retried"
    EXHAUSTED = "exhausted"


_MENDINGS: frozenset[type[Fact]] = frozenset(
    (
        Rescued,
        Repaired,
        Coerced,
        Renamed,
        Dropped,
        LoopNoticed,
        RoundsExceeded,
        FailuresNoticed,
    )
)
_NAMED: dict[type[Fact], str] = {
    Rescued: "rescued",
    LoopNoticed: "loop",
    RoundsExceeded: "rounds",
    FailuresNoticed: "failures",
    RejectedReply: "rejected",
}
_COUNTED: frozenset[type[Fact]] = frozenset(
    (
        Repaired,
        Coerced,
        Renamed,
        Dropped,
        Unchecked,
        Refused,
        Healed,
        Omitted,
        RuleSkipped,
        Withheld,
    )
)


def attempts(facts: Iterable[Fact]) -> int:
    """Count the generations that were asked for."""
    return sum(isinstance(fact, Asked) for fact in facts)


class Try(msgspec.Struct, frozen=True):
    """One generation as it was judged; `defect` is None where nothing was wrong with it."""

    kind: str
    defect: str | None = None


def tries(facts: Iterable[Fact]) -> tuple[Try, ...]:
    """Return each generation that was asked for, with what was wrong with it."""
    found: list[Try] = []
    for fact in facts:
        match fact:
            case Asked(kind):
                found.append(Try(kind))
            case RejectedReply(defect) if found:
                found[-1] = Try(found[-1].kind, defect)
            case _:
                pass
    return tuple(found)


def outcome(facts: Iterable[Fact]) -> Outcome:
    """Tell how a request ended, in one word."""
    happened = tuple(facts)
    kinds = [type(fact) for fact in happened]
    if LadderEnded in kinds or BrokeOff in kinds:
        return Outcome.EXHAUSTED
    rounds = {fact.round for fact in happened if isinstance(fact, ToolRan)}
    if kinds.count(Asked) > 1 + len(rounds):
        return Outcome.RETRIED
    return Outcome.CLEAN if _MENDINGS.isdisjoint(kinds) else Outcome.REPAIRED


def last_defect(facts: Iterable[Fact]) -> str | None:
    """Tell with what the ladder ended, if it did."""
    return next((fact.defect for fact in facts if isinstance(fact, LadderEnded)), None)


def repairs(facts: Iterable[Fact]) -> str:
    """List what was wrong and mended, e.g. `rescued=hermes;rejected=prose;coerced=2`, or nothing.

    Syntaxes, defects and tools in a loop are named, everything else is counted; an announcement is
    just `announced`, `rounds` tells after how many of them an answer was asked for, and `failures`
    after how many in a row that failed the model was told so.
    """
    named: dict[str, list[str]] = {}
    counted: dict[str, int] = {}
    for fact in facts:
        match fact:
            case RejectedReply("announced"):
                named.setdefault("announced", [])
            case Rescued(name) | LoopNoticed(name) | RejectedReply(name):
                named.setdefault(_NAMED[type(fact)], []).append(name)
            case RoundsExceeded(rounds) | FailuresNoticed(rounds):
                named.setdefault(_NAMED[type(fact)], []).append(str(rounds))
            case _ if type(fact) in _COUNTED:
                word = type(fact).__name__.lower()
                counted[word] = counted.get(word, 0) + 1
            case _:
                pass
    parts = [
        f"{word}={','.join(dict.fromkeys(names))}" if names else word
        for word, names in named.items()
    ]
    return ";".join(parts + [f"{word}={count}" for word, count in counted.items()])


def report(facts: Iterable[Fact]) -> dict[str, str]:
    """Return what a client is told: `attempts`, `outcome`, and others if there is anything."""
    happened = tuple(facts)
    told = {"attempts": str(attempts(happened)), "outcome": outcome(happened).value}
    if done := repairs(happened):
        told["repairs"] = done
    if shape := context(happened):
        told["context"] = shape
    if ran := tools(happened):
        told["tools"] = ran
    return told


def tools(facts: Iterable[Fact]) -> str:
    """Count the calls of the operator's tools by their servers, e.g. `search=2, time=1`."""
    servers = [fact.server for fact in facts if isinstance(fact, ToolRan)]
    return ", ".join(f"{server}={servers.count(server)}" for server in dict.fromkeys(servers))


def context(facts: Iterable[Fact]) -> str:
    """Tell how the conversation was fitted into the window, or nothing if nobody counted."""
    told: list[str] = []
    for fact in facts:
        match fact:
            case Compacted():
                told.append(str(fact))
            case WindowFilled():
                told.append("filled=1")
            case _:
                pass
    return "; ".join(told)
