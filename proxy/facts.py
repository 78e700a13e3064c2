"""What happened to a request, as data: all that logs, metrics and headers ever see.

Facts have words for people in `words.toml`, which log lines, terminals and the page share.
"""

from collections.abc import Iterable
from enum import Enum
from functools import lru_cache
from importlib.resources import files
from typing import ClassVar, NamedTuple

import msgspec


class Wording(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a kind of fact is reported; the fields are described in `words.toml`."""

    name: str = ""
    listed: str = ""
    sentence: str = ""
    few: str = ""
    several: str = ""


class WordLists(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The words of facts and of closed lists, for people; `words.toml` describes each."""

    facts: dict[str, Wording]
    defects: dict[str, tuple[str, str]]
    dropped: dict[str, str]
    healed: dict[str, str]
    attempts: dict[str, str]
    causes: dict[str, str]
    checks: dict[str, str]
    errors: dict[str, str]
    outcomes: dict[str, tuple[str, str]]
    stages: dict[str, str]
    departures: dict[str, str]


WORDS = msgspec.toml.decode((files("proxy") / "words.toml").read_bytes(), type=WordLists)


class Words(NamedTuple):
    """A fact for people; `few` are for a line, "" where it is no news there, `several` for many."""

    sentence: str
    few: str
    several: str


class Fact(msgspec.Struct, frozen=True, gc=False):
    """Something that happened to a request, with its `wording`."""

    wording: ClassVar[Wording] = Wording()

    def __init_subclass__(cls) -> None:
        cls.wording = WORDS.facts.get(cls.__name__, Wording())

    @property
    def name(self) -> str:
        return self.wording.name

    def terms(self) -> dict[str, str]:
        """Return what its templates name; what others wrote is cut, not escaped."""
        return {name: cut(str(value)) for name, value in msgspec.structs.asdict(self).items()}

    def words(self) -> Words | None:
        """Return it in words, None if it is no news."""
        wording = self.wording
        if not wording.sentence:
            return None
        terms = self.terms()
        sentence, few = wording.sentence.format(**terms), wording.few.format(**terms)
        return Words(sentence, few, wording.several)


class Asked(Fact, frozen=True):
    """A question was put to the backend; `kind` names its place on the ladder of attempts."""

    kind: str


class Rescued(Fact, frozen=True):
    """A call that was text became a call."""

    syntax: str
    tool: str


class Refused(Fact, frozen=True):
    """Text that looked like a call was left alone; `reason` is a word from a closed list."""

    reason: str

    def terms(self) -> dict[str, str]:
        return {"why": cut(self.reason).replace("_", " ")}


class Repaired(Fact, frozen=True):
    """Invalid JSON in the arguments of a call was repaired."""

    tool: str


class Coerced(Fact, frozen=True):
    """A value of the wrong type was converted without loss; `pointer` is a JSON pointer."""

    tool: str
    pointer: str

    def terms(self) -> dict[str, str]:
        return {"value": cut(self.pointer) or "A value", "tool": cut(self.tool)}


class Renamed(Fact, frozen=True):
    """A near-miss tool name was matched to the only tool it can mean."""

    written: str
    tool: str


class Dropped(Fact, frozen=True):
    """A part of the reply was not passed on; `what` is a word from a closed list."""

    what: str

    def terms(self) -> dict[str, str]:
        unknown = f"A part of the reply was left out ({cut(self.what)})."
        return {"told": WORDS.dropped.get(self.what, unknown)}


class EndedThoughts(Fact, frozen=True):
    """The model ended thoughts that it had not begun: its prompt had."""


class Unchecked(Fact, frozen=True):
    """A tool's schema, or a type in it, is unusable, so its arguments were not checked for it."""

    tool: str
    problem: str


class Healed(Fact, frozen=True):
    """Something broken in the incoming request was mended; `what` is a word from a closed list."""

    what: str

    def terms(self) -> dict[str, str]:
        return {"repair": WORDS.healed.get(self.what, cut(self.what))}


class Omitted(Fact, frozen=True):
    """A part of the incoming request means nothing here; `what` is a word from a closed list."""

    what: str


class RuleSkipped(Fact, frozen=True):
    """A rule of order was left out, as it waits for a `tool` that the request does not offer."""

    tool: str


class LoopNoticed(Fact, frozen=True):
    """The history ends in the same call with the same result, `times` times in a row."""

    tool: str
    times: int


class RoundsExceeded(Fact, frozen=True):
    """The model has called tools for too many rounds and was asked for an answer instead."""

    rounds: int


class RoundsMade(Fact, frozen=True):
    """The history holds many `rounds` of tool calls since the user spoke; nobody minds."""

    rounds: int


class FailuresNoticed(Fact, frozen=True):
    """The history ends in `rounds` rounds of tool calls that all failed."""

    rounds: int


class RejectedReply(Fact, frozen=True):
    """A reply was not good enough; `defect` is a word from a closed list."""

    defect: str

    def terms(self) -> dict[str, str]:
        unknown = f"The reply was not good enough ({cut(self.defect)}).", cut(self.defect)
        told, few = WORDS.defects.get(self.defect, unknown)
        return {"told": told, "few": few}


class ClosedOut(Fact, frozen=True):
    """It was asked whether something was left behind an answer; both are words of closed lists."""

    cause: str
    result: str

    def terms(self) -> dict[str, str]:
        why = WORDS.causes.get(self.cause, cut(self.cause))
        return {"why": why, "told": WORDS.checks.get(self.result, cut(self.result))}


class AnswerLimited(Fact, frozen=True):
    """The client's limit of the answer was lowered to `tokens`, which the window has room for."""

    tokens: int


class Withheld(Fact, frozen=True):
    """Another attempt was due, but too many other requests are being asked again already."""


class BrokeOff(Fact, frozen=True):
    """A call of this tool that the client had seen the beginning of never became a valid one."""

    tool: str


class LadderEnded(Fact, frozen=True):
    """No further attempt was allowed; the client got the most faithful reply there was."""

    defect: str


class Compacted(Fact, frozen=True, rename={"window": "n_ctx"}):
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

    def words(self) -> Words | None:
        return super().words() if self.is_new else None


class WindowFilled(Fact, frozen=True):
    """The answer ended because the window of so many tokens was full."""

    window: int

    def __str__(self) -> str:
        return "filled=1"


class ToolRan(Fact, frozen=True):
    """A tool of the operator was called, in the round of that number; `status` is how it ended."""

    server: str
    tool: str
    status: str
    round: int


class ReplyOutcome(Enum):
    """How much had to be done for a reply, from nothing to too much."""

    CLEAN = "clean"
    REPAIRED = "repaired"
    RETRIED = "retried"
    EXHAUSTED = "exhausted"


_MENDINGS: frozenset[type[Fact]] = frozenset(
    (Rescued, Repaired, Coerced, Renamed, Dropped, LoopNoticed, RoundsExceeded, FailuresNoticed)
)


def cut(text: str, longest: int = 120) -> str:
    """Return what a client or a model chose, no longer than so many characters."""
    return text if len(text) <= longest else text[:longest] + "..."


_ANNOUNCED = RejectedReply("announced")


def explain_end(attempts: int, defect: str, objection: str) -> str:
    """Say in one sentence, in place of an answer, that there is none and why."""
    times = "1 attempt" if attempts == 1 else f"{attempts} attempts"
    _, few = WORDS.defects[defect]
    about = f" ({cut(objection, 300)})" if objection else ""
    return f"The model gave no usable reply in {times}: {few}{about}."


def attempts(facts: Iterable[Fact]) -> int:
    """Count the generations that were asked for."""
    return [*map(type, facts)].count(Asked)


class JudgedAttempt(msgspec.Struct, frozen=True, gc=False):
    """One generation as it was judged; `defect` is None where nothing was wrong with it."""

    kind: str
    defect: str | None = None


def judged_attempts(facts: Iterable[Fact]) -> tuple[JudgedAttempt, ...]:
    """Return each generation that was asked for, with what was wrong with it."""
    found: list[JudgedAttempt] = []
    for fact in facts:
        if isinstance(fact, Asked):
            found.append(JudgedAttempt(fact.kind))
        elif isinstance(fact, RejectedReply) and found:
            found[-1] = JudgedAttempt(found[-1].kind, fact.defect)
    return tuple(found)


# The facts of an answer are worded for its headers, its log line and its record.
_worded = lru_cache(maxsize=64)


@_worded
def outcome(facts: tuple[Fact, ...]) -> ReplyOutcome:
    """Tell how a request ended, in one word."""
    kinds: list[type[Fact]] = [*map(type, facts)]
    if LadderEnded in kinds or BrokeOff in kinds:
        return ReplyOutcome.EXHAUSTED
    again = kinds.count(Asked) - 1
    if again > 0:  # a question behind the answer counts if calls came of it
        again -= len({fact.round for fact in facts if isinstance(fact, ToolRan)})
        checks = [fact for fact in facts if isinstance(fact, ClosedOut)]
        again -= facts.count(Asked("close_out")) - sum(one.result == "called" for one in checks)
    if again > 0:
        return ReplyOutcome.RETRIED
    return ReplyOutcome.CLEAN if _MENDINGS.isdisjoint(kinds) else ReplyOutcome.REPAIRED


def last_defect(facts: Iterable[Fact]) -> str | None:
    """Tell with what the ladder ended, if it did."""
    return next((fact.defect for fact in facts if isinstance(fact, LadderEnded)), None)


@_worded
def repairs(facts: tuple[Fact, ...]) -> str:
    """List what was wrong and mended, e.g. `rescued=hermes;rejected=prose;coerced=2`, or nothing.

    Syntaxes, defects and tools in a loop are named, everything else is counted; an announcement is
    just `announced`, `rounds` tells after how many of them an answer was asked for, and `failures`
    after how many in a row that failed the model was told so.
    """
    named: dict[str, list[str]] = {}
    counted: dict[str, int] = {}
    for fact in facts:
        word, field = fact.wording.name, fact.wording.listed
        if not word:
            continue
        if fact == _ANNOUNCED:
            named.setdefault("announced", [])
        elif field and (detail := str(getattr(fact, field))):
            named.setdefault(word, []).append(detail)
        else:
            counted[word] = counted.get(word, 0) + 1
    parts = [
        f"{word}={','.join(dict.fromkeys(names))}" if names else word
        for word, names in named.items()
    ]
    return ";".join(parts + [f"{word}={count}" for word, count in counted.items()])


def report(facts: tuple[Fact, ...]) -> dict[str, str]:
    """Return what a client is told: `attempts`, `outcome`, and others if there is anything."""
    told = {
        "attempts": str(attempts(facts)),
        "outcome": outcome(facts).value,
        "repairs": repairs(facts),
        "context": context(facts),
        "tools": tools(facts),
    }
    return {name: value for name, value in told.items() if value}


@_worded
def tools(facts: tuple[Fact, ...]) -> str:
    """Count the calls of the operator's tools by their servers, e.g. `search=2, time=1`."""
    servers = [fact.server for fact in facts if isinstance(fact, ToolRan)]
    return ", ".join(f"{server}={servers.count(server)}" for server in dict.fromkeys(servers))


@_worded
def context(facts: tuple[Fact, ...]) -> str:
    """Tell how the conversation was fitted into the window, or nothing if nobody counted."""
    return "; ".join([str(fact) for fact in facts if isinstance(fact, (Compacted, WindowFilled))])
