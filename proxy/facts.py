"""What happened to a request, as data: all that logs, metrics and headers ever see.

Each fact has its words for people here; log lines, terminals and the page take them from it.
"""

from collections.abc import Iterable, Mapping
from enum import Enum
from types import MappingProxyType
from typing import ClassVar, NamedTuple

import msgspec

_LONGEST = 120  # characters of a word that a client or a model chose


class Words(NamedTuple):
    """A fact for people; `few` are for a line, "" where it is no news there, `several` for many."""

    sentence: str
    few: str = ""
    several: str = ""


class Fact(msgspec.Struct, frozen=True, gc=False):
    """Something that happened to a request."""

    # its name in `repairs`, "" where it is none
    name: ClassVar[str] = ""

    @property
    def detail(self) -> str:
        """What is listed of it there, "" where it is only counted."""
        return ""

    def words(self) -> Words | None:
        """Return it in words, None where it is no news; what others wrote is cut, not escaped."""
        return None


class Asked(Fact, frozen=True):
    """A question was put to the backend; `kind` names its place on the ladder of attempts."""

    kind: str


class Rescued(Fact, frozen=True):
    """A call that was text became a call."""

    syntax: str
    tool: str

    name = "rescued"

    @property
    def detail(self) -> str:
        return self.syntax

    def words(self) -> Words:
        syntax = cut(self.syntax)  # a line has all of them in one place
        return Words(f"A call written as text ({syntax}) became a call of {cut(self.tool)}.")


class Refused(Fact, frozen=True):
    """Text that looked like a call was left alone; `reason` is a word from a closed list."""

    reason: str

    name = "refused"

    def words(self) -> Words:
        few, why = "text like a call left alone", cut(self.reason).replace("_", " ")
        told = f"Text that looked like a call was left alone ({why})."
        return Words(told, few, f"{few} {{}} times")


class Repaired(Fact, frozen=True):
    """Broken JSON in a call's arguments was read as what it plainly meant."""

    tool: str

    name = "repaired"

    def words(self) -> Words:
        told = f"Broken JSON in a call of {cut(self.tool)} was read as what it plainly meant."
        return Words(told, "broken JSON repaired", "broken JSON repaired {} times")


class Coerced(Fact, frozen=True):
    """A value of the wrong type was converted without loss; `pointer` is a JSON pointer."""

    tool: str
    pointer: str

    name = "coerced"

    def words(self) -> Words:
        value = cut(self.pointer) or "A value"
        told = f"{value} of {cut(self.tool)} was converted to the right type."
        return Words(told, "a value converted", "{} values converted")


class Renamed(Fact, frozen=True):
    """A near-miss tool name was matched to the only tool it can mean."""

    written: str
    tool: str

    name = "renamed"

    def words(self) -> Words:
        told = f"{cut(self.written)} is not a tool and was taken for {cut(self.tool)}."
        return Words(told, "a tool's name corrected", "{} tools' names corrected")


_DROPPED = {
    "too_many_calls": "Calls beyond the most that one reply may have were left out.",
    "invented_result": "A tool result that the model had invented was left out.",
    "code_fence": "The code fence around the answer was taken off.",
    "parallel_call": "A second call was left out: the client wants one at a time.",
    "cut_off_call": "A call that broke off was left out.",
}


class Dropped(Fact, frozen=True):
    """A part of the reply was not passed on; `what` is a word from a closed list."""

    what: str

    name = "dropped"

    def words(self) -> Words:
        unknown = f"A part of the reply was left out ({cut(self.what)})."
        return Words(_DROPPED.get(self.what, unknown), "a part dropped", "{} parts dropped")


class Unchecked(Fact, frozen=True):
    """A tool's schema, or a type in it, is unusable, so its arguments were not checked for it."""

    tool: str
    problem: str

    name = "unchecked"

    def words(self) -> Words:
        told = f"{cut(self.tool)} could not be checked: {cut(self.problem)}."
        return Words(told, "an unusable schema not checked", "{} unusable schemas not checked")


_HEALED = {
    "unanswered_call": "a call without a result got one",
    "call_id": "a call got an id",
    "orphan_result": "a result without a call became plain text",
    "result_id": "a result was joined to its call",
    "content": "content without a meaning was replaced",
    "arguments": "the arguments of an earlier call were made valid",
    "type": "a call got its type",
    "description": "the description of a tool was replaced",
    "developer_role": "a developer message became a system message",
    "system_role": "a system message was moved to where the template takes it",
    "alternation": "messages in a row were joined",
    "control_token": "a control token was taken out",
}


class Healed(Fact, frozen=True):
    """Something broken in the incoming request was mended; `what` is a word from a closed list."""

    what: str

    name = "healed"

    def words(self) -> Words:
        told = f"The history was repaired: {_HEALED.get(self.what, cut(self.what))}."
        return Words(told, "the history repaired", "the history repaired in {} places")


class Omitted(Fact, frozen=True):
    """A part of the incoming request means nothing here; `what` is a word from a closed list."""

    what: str

    name = "omitted"

    def words(self) -> Words:
        told = f"A part of the request means nothing here and was left out ({cut(self.what)})."
        return Words(told)  # no news in a line: it is the same in every request of a client


class RuleSkipped(Fact, frozen=True):
    """A rule of order was left out, as it waits for a `tool` that the request does not offer."""

    tool: str

    name = "ruleskipped"

    def words(self) -> Words:
        told = f"A rule of order was skipped: {cut(self.tool)} is not on offer."
        return Words(told, "a rule of order left out", "{} rules of order left out")


class LoopNoticed(Fact, frozen=True):
    """The history ends in the same call with the same result, `times` times in a row."""

    tool: str
    times: int

    name = "loop"

    @property
    def detail(self) -> str:
        return self.tool

    def words(self) -> Words:
        tool, times = cut(self.tool), self.times
        told = f"{tool} was called {times} times with the same result."
        return Words(told, f"the same call of {tool} {times} times")


class RoundsExceeded(Fact, frozen=True):
    """The model has called tools for too many rounds and was asked for an answer instead."""

    rounds: int

    name = "rounds"

    @property
    def detail(self) -> str:
        return str(self.rounds)

    def words(self) -> Words:
        told = f"After {self.rounds} rounds of tool calls an answer was asked for."
        return Words(told, f"an answer asked for after {self.rounds} rounds of tools")


class FailuresNoticed(Fact, frozen=True):
    """The history ends in `rounds` rounds of tool calls that all failed."""

    rounds: int

    name = "failures"

    @property
    def detail(self) -> str:
        return str(self.rounds)

    def words(self) -> Words:
        rounds = self.rounds
        told = f"The last {rounds} rounds of tool calls all failed, and the model was told so."
        return Words(told, f"{rounds} rounds of failing tools noticed")


DEFECTS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "prose": (
            "The model answered in prose although tools were on offer.",
            "prose instead of a call",
        ),
        "announced": (
            "The model only announced what it would do.",
            "a call that was only announced",
        ),
        "unknown_syntax": (
            "The model wrote a call as text, in a syntax that is not known.",
            "a call in an unknown syntax",
        ),
        "empty": ("The reply was empty.", "an empty reply"),
        "unknown_tool": ("It called a tool that does not exist.", "an unknown tool"),
        "wrong_tool": (
            "It called another tool than the one that was required.",
            "a tool that was not allowed",
        ),
        "broken_arguments": ("The arguments of a call were not JSON.", "broken arguments"),
        "invalid_arguments": (
            "The arguments of a call did not fit the tool's schema.",
            "invalid arguments",
        ),
        "unreadable": ("The backend could not read what the model wrote.", "an unreadable call"),
        "invalid_answer": (
            "The answer did not have the form that was asked for.",
            "an invalid answer",
        ),
        "loop": (
            "It repeated a call that had already given the same result.",
            "a repeated call",
        ),
        "step_missing": ("It skipped a step that has to come first.", "a step left out"),
        "not_continued": (
            "It did not go on with the call that it had begun.",
            "a call that was not continued",
        ),
    }
)


class RejectedReply(Fact, frozen=True):
    """A reply was not good enough; `defect` is a word from a closed list."""

    defect: str

    name = "rejected"

    @property
    def detail(self) -> str:
        return self.defect

    def words(self) -> Words:
        unknown = f"The reply was not good enough ({cut(self.defect)}).", cut(self.defect)
        told, few = DEFECTS.get(self.defect, unknown)
        return Words(told, f"rejected {few}")


class Withheld(Fact, frozen=True):
    """Another attempt was due, but too many other requests are being asked again already."""

    name = "withheld"

    def words(self) -> Words:
        told = "It was not asked again: too many others were being asked again."
        return Words(told, "no retry, as too many run already")


class BrokeOff(Fact, frozen=True):
    """A call of this tool that the client had seen the beginning of never became a valid one."""

    tool: str

    def words(self) -> Words:
        tool = cut(self.tool)
        told = f"A call of {tool} broke off after the client had seen its beginning."
        return Words(told, f"a call of {tool} broke off")


class LadderEnded(Fact, frozen=True):
    """No further attempt was allowed; the client got the most faithful reply there was."""

    defect: str

    def words(self) -> Words:
        told = "No further attempt was allowed: the client got the most faithful reply."
        return Words(told, "no further attempt allowed")


class Compacted(Fact, frozen=True):
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
        if not self.is_new:
            return None
        told = f"The conversation was shortened to fit (tier {self.tier})."
        return Words(told, f"history cut from {self.client} to {self.sent} tokens")


class WindowFilled(Fact, frozen=True):
    """The answer ended because the window of so many tokens was full."""

    window: int

    def words(self) -> Words:
        told = f"The answer ended because the window of {self.window} tokens was full."
        return Words(told, "the window is full")


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


def cut(text: str, longest: int = _LONGEST) -> str:
    """Return a text, no longer than so many characters."""
    return text if len(text) <= longest else text[:longest] + "..."


_ANNOUNCED = RejectedReply("announced")


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
    if kinds.count(Asked) > 1 + len(rounds):
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
        elif detail := fact.detail:
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
    if not servers:
        return ""
    return ", ".join(f"{server}={servers.count(server)}" for server in dict.fromkeys(servers))


def context(facts: Iterable[Fact]) -> str:
    """Tell how the conversation was fitted into the window, or nothing if nobody counted."""
    told = [fact for fact in facts if isinstance(fact, (Compacted, WindowFilled))]
    return "; ".join(["filled=1" if isinstance(fact, WindowFilled) else str(fact) for fact in told])
