"""What happened to a request, as data: all that logs, metrics and headers ever see.

Each fact has its words for people here; log lines, terminals and the page take them from it. Those
of closed lists stand in `words.toml`.
"""

from collections.abc import Iterable
from enum import Enum
from importlib.resources import files
from typing import ClassVar, NamedTuple

import msgspec


class WordLists(msgspec.Struct, frozen=True):
    """The words of closed lists, for people; `words.toml` says what each has."""

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
    """Something that happened to a request.

    `name` is its name in `repairs`, "" where it is none; the field `listed` is named there, and
    without one it is only counted. `sentence`, `few` and `several` are templates of its `Words`,
    the first two for its `terms`, the last for a number; without a sentence it is no news.
    """

    name: ClassVar[str] = ""
    listed: ClassVar[str] = ""
    sentence: ClassVar[str] = ""
    few: ClassVar[str] = ""
    several: ClassVar[str] = ""

    def terms(self) -> dict[str, str]:
        """Return what its templates name; what others wrote is cut, not escaped."""
        return {name: cut(str(value)) for name, value in msgspec.structs.asdict(self).items()}

    def words(self) -> Words | None:
        """Return it in words, None where it is no news."""
        if not self.sentence:
            return None
        terms = self.terms()
        return Words(self.sentence.format(**terms), self.few.format(**terms), self.several)


class Asked(Fact, frozen=True):
    """A question was put to the backend; `kind` names its place on the ladder of attempts."""

    kind: str


class Rescued(Fact, frozen=True):
    """A call that was text became a call."""

    syntax: str
    tool: str

    name = "rescued"
    listed = "syntax"
    # a line has all syntaxes in one place
    sentence = "A call written as text ({syntax}) became a call of {tool}."


class Refused(Fact, frozen=True):
    """Text that looked like a call was left alone; `reason` is a word from a closed list."""

    reason: str

    name = "refused"
    sentence = "Text that looked like a call was left alone ({why})."
    few = "text like a call left alone"
    several = "text like a call left alone {} times"

    def terms(self) -> dict[str, str]:
        return {"why": cut(self.reason).replace("_", " ")}


class Repaired(Fact, frozen=True):
    """Broken JSON in a call's arguments was read as what it plainly meant."""

    tool: str

    name = "repaired"
    sentence = "Broken JSON in a call of {tool} was read as what it plainly meant."
    few = "broken JSON repaired"
    several = "broken JSON repaired {} times"


class Coerced(Fact, frozen=True):
    """A value of the wrong type was converted without loss; `pointer` is a JSON pointer."""

    tool: str
    pointer: str

    name = "coerced"
    sentence = "{value} of {tool} was converted to the right type."
    few = "a value converted"
    several = "{} values converted"

    def terms(self) -> dict[str, str]:
        return {"value": cut(self.pointer) or "A value", "tool": cut(self.tool)}


class Renamed(Fact, frozen=True):
    """A near-miss tool name was matched to the only tool it can mean."""

    written: str
    tool: str

    name = "renamed"
    sentence = "{written} is not a tool and was taken for {tool}."
    few = "a tool's name corrected"
    several = "{} tools' names corrected"


class Dropped(Fact, frozen=True):
    """A part of the reply was not passed on; `what` is a word from a closed list."""

    what: str

    name = "dropped"
    sentence = "{told}"
    few = "a part dropped"
    several = "{} parts dropped"

    def terms(self) -> dict[str, str]:
        unknown = f"A part of the reply was left out ({cut(self.what)})."
        return {"told": WORDS.dropped.get(self.what, unknown)}


class EndedThoughts(Fact, frozen=True):
    """The model ended thoughts that it had not begun: its prompt had."""

    sentence = "The reply ended thoughts that it had not begun; in later ones they are split off."
    few = "thoughts without a beginning"


class Unchecked(Fact, frozen=True):
    """A tool's schema, or a type in it, is unusable, so its arguments were not checked for it."""

    tool: str
    problem: str

    name = "unchecked"
    sentence = "{tool} could not be checked: {problem}."
    few = "an unusable schema not checked"
    several = "{} unusable schemas not checked"


class Healed(Fact, frozen=True):
    """Something broken in the incoming request was mended; `what` is a word from a closed list."""

    what: str

    name = "healed"
    sentence = "The history was repaired: {repair}."
    few = "the history repaired"
    several = "the history repaired in {} places"

    def terms(self) -> dict[str, str]:
        return {"repair": WORDS.healed.get(self.what, cut(self.what))}


class Omitted(Fact, frozen=True):
    """A part of the incoming request means nothing here; `what` is a word from a closed list."""

    what: str

    name = "omitted"
    # no news in a line: it is the same in every request of a client
    sentence = "A part of the request means nothing here and was left out ({what})."


class RuleSkipped(Fact, frozen=True):
    """A rule of order was left out, as it waits for a `tool` that the request does not offer."""

    tool: str

    name = "ruleskipped"
    sentence = "A rule of order was skipped: {tool} is not on offer."
    few = "a rule of order left out"
    several = "{} rules of order left out"


class LoopNoticed(Fact, frozen=True):
    """The history ends in the same call with the same result, `times` times in a row."""

    tool: str
    times: int

    name = "loop"
    listed = "tool"
    sentence = "{tool} was called {times} times with the same result."
    few = "the same call of {tool} {times} times"


class RoundsExceeded(Fact, frozen=True):
    """The model has called tools for too many rounds and was asked for an answer instead."""

    rounds: int

    name = "rounds"
    listed = "rounds"
    sentence = "After {rounds} rounds of tool calls an answer was asked for."
    few = "an answer asked for after {rounds} rounds of tools"


class FailuresNoticed(Fact, frozen=True):
    """The history ends in `rounds` rounds of tool calls that all failed."""

    rounds: int

    name = "failures"
    listed = "rounds"
    sentence = "The last {rounds} rounds of tool calls all failed, and the model was told so."
    few = "{rounds} rounds of failing tools noticed"


class RejectedReply(Fact, frozen=True):
    """A reply was not good enough; `defect` is a word from a closed list."""

    defect: str

    name = "rejected"
    listed = "defect"
    sentence = "{told}"
    few = "rejected {few}"

    def terms(self) -> dict[str, str]:
        unknown = f"The reply was not good enough ({cut(self.defect)}).", cut(self.defect)
        told, few = WORDS.defects.get(self.defect, unknown)
        return {"told": told, "few": few}


class ClosedOut(Fact, frozen=True):
    """It was asked whether something was left behind an answer; both are words of closed lists."""

    cause: str
    result: str

    name = "close_out"
    listed = "result"
    sentence = "Behind {why} it was asked whether something was left to do: {told}."
    few = "asked what is left behind {why}: {told}"

    def terms(self) -> dict[str, str]:
        why = WORDS.causes.get(self.cause, cut(self.cause))
        return {"why": why, "told": WORDS.checks.get(self.result, cut(self.result))}


class Withheld(Fact, frozen=True):
    """Another attempt was due, but too many other requests are being asked again already."""

    name = "withheld"
    sentence = "It was not asked again: too many others were being asked again."
    few = "no retry, as too many run already"


class BrokeOff(Fact, frozen=True):
    """A call of this tool that the client had seen the beginning of never became a valid one."""

    tool: str

    sentence = "A call of {tool} broke off after the client had seen its beginning."
    few = "a call of {tool} broke off"


class LadderEnded(Fact, frozen=True):
    """No further attempt was allowed; the client got the most faithful reply there was."""

    defect: str

    sentence = "No further attempt was allowed: the client got what could be used of the replies."
    few = "no further attempt allowed"


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

    sentence = "The conversation was shortened to fit (tier {tier})."
    few = "history cut from {client} to {sent} tokens"

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

    sentence = "The answer ended because the window of {window} tokens was full."
    few = "the window is full"

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
    return sum(isinstance(fact, Asked) for fact in facts)


class Try(msgspec.Struct, frozen=True, gc=False):
    """One generation as it was judged; `defect` is None where nothing was wrong with it."""

    kind: str
    defect: str | None = None


def tries(facts: Iterable[Fact]) -> tuple[Try, ...]:
    """Return each generation that was asked for, with what was wrong with it."""
    found: list[Try] = []
    for fact in facts:
        if isinstance(fact, Asked):
            found.append(Try(fact.kind))
        elif isinstance(fact, RejectedReply) and found:
            found[-1] = Try(found[-1].kind, fact.defect)
    return tuple(found)


def outcome(facts: Iterable[Fact]) -> ReplyOutcome:
    """Tell how a request ended, in one word."""
    happened = tuple(facts)
    kinds: list[type[Fact]] = [*map(type, happened)]
    if LadderEnded in kinds or BrokeOff in kinds:
        return ReplyOutcome.EXHAUSTED
    rounds = {fact.round for fact in happened if isinstance(fact, ToolRan)}
    again = kinds.count(Asked) - 1 - len(rounds)
    if again > 0:  # a question behind the answer counts if calls came of it
        checks = [fact for fact in happened if isinstance(fact, ClosedOut)]
        again -= happened.count(Asked("close_out")) - sum(one.result == "called" for one in checks)
    if again > 0:
        return ReplyOutcome.RETRIED
    return ReplyOutcome.CLEAN if _MENDINGS.isdisjoint(kinds) else ReplyOutcome.REPAIRED


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
        if not fact.name:
            continue
        if fact == _ANNOUNCED:
            named.setdefault("announced", [])
        elif fact.listed and (detail := str(getattr(fact, fact.listed))):
            named.setdefault(fact.name, []).append(detail)
        else:
            counted[fact.name] = counted.get(fact.name, 0) + 1
    parts = [
        f"{word}={','.join(dict.fromkeys(names))}" if names else word
        for word, names in named.items()
    ]
    return ";".join(parts + [f"{word}={count}" for word, count in counted.items()])


def report(facts: Iterable[Fact]) -> dict[str, str]:
    """Return what a client is told: `attempts`, `outcome`, and others if there is anything."""
    happened = tuple(facts)
    told = {
        "attempts": str(attempts(happened)),
        "outcome": outcome(happened).value,
        "repairs": repairs(happened),
        "context": context(happened),
        "tools": tools(happened),
    }
    return {name: value for name, value in told.items() if value}


def tools(facts: Iterable[Fact]) -> str:
    """Count the calls of the operator's tools by their servers, e.g. `search=2, time=1`."""
    servers = [fact.server for fact in facts if isinstance(fact, ToolRan)]
    return ", ".join(f"{server}={servers.count(server)}" for server in dict.fromkeys(servers))


def context(facts: Iterable[Fact]) -> str:
    """Tell how the conversation was fitted into the window, or nothing if nobody counted."""
    return "; ".join([str(fact) for fact in facts if isinstance(fact, (Compacted, WindowFilled))])
