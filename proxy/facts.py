"""Events of a request as data, the only source of logs, metrics and outcome headers.

Their texts are in `words.toml`, shared by log lines, terminals and the dashboard.
"""

from collections.abc import Iterable
from enum import Enum
from functools import lru_cache
from importlib.resources import files
from typing import ClassVar, NamedTuple

import msgspec


class Wording(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Texts of a kind of fact; `words.toml` describes the fields."""

    name: str = ""
    listed: str = ""
    sentence: str = ""
    few: str = ""
    several: str = ""


class WordLists(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Texts of facts and enumerations; `words.toml` describes each."""

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
    """Texts of a fact; `few` ("" to omit it) and `several` are for log lines."""

    sentence: str
    few: str
    several: str


# gc=False: facts cannot be part of a reference cycle, and each request creates several
class Fact(msgspec.Struct, frozen=True, gc=False):
    """An event of a request, with its texts in `wording`."""

    wording: ClassVar[Wording] = Wording()

    def __init_subclass__(cls) -> None:
        cls.wording = WORDS.facts.get(cls.__name__, Wording())

    @property
    def name(self) -> str:
        return self.wording.name

    def terms(self) -> dict[str, str]:
        """Return the values for its templates; foreign text is cut, but not escaped."""
        return {name: cut(str(value)) for name, value in msgspec.structs.asdict(self).items()}

    def words(self) -> Words | None:
        """Return its texts, None if it is not shown."""
        wording = self.wording
        if not wording.sentence:
            return None
        terms = self.terms()
        sentence, few = wording.sentence.format(**terms), wording.few.format(**terms)
        return Words(sentence, few, wording.several)


class Asked(Fact, frozen=True):
    """An upstream request was sent; `kind` is the kind of attempt."""

    kind: str


class Rescued(Fact, frozen=True):
    """A call written as text became a call."""

    syntax: str
    tool: str


class Refused(Fact, frozen=True):
    """Text that looked like a call was kept as text; `reason` is from a closed list."""

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
    """A misspelled tool name was replaced by the only tool it can mean."""

    written: str
    tool: str


class Dropped(Fact, frozen=True):
    """A part of the reply was removed; `what` is from a closed list."""

    what: str

    def terms(self) -> dict[str, str]:
        unknown = f"A part of the reply was removed ({cut(self.what)})."
        return {"text": WORDS.dropped.get(self.what, unknown)}


class EndedThoughts(Fact, frozen=True):
    """The reply closed a reasoning block that the prompt had opened."""


class Unchecked(Fact, frozen=True):
    """A tool's schema, or a part of it, is unusable, so that arguments were not validated."""

    tool: str
    problem: str


class Healed(Fact, frozen=True):
    """A part of the incoming request was repaired; `what` is from a closed list."""

    what: str

    def terms(self) -> dict[str, str]:
        return {"repair": WORDS.healed.get(self.what, cut(self.what))}


class ReasoningRestored(Fact, frozen=True):
    """The client omitted the reasoning of so many `messages`; it was put back."""

    messages: int


class Omitted(Fact, frozen=True):
    """A part of the incoming request has no effect here; `what` is from a closed list."""

    what: str


class RuleSkipped(Fact, frozen=True):
    """An order rule was skipped, because the request does not offer its `tool`."""

    tool: str


class LoopNoticed(Fact, frozen=True):
    """The history ends with the same call and the same result, `times` times in a row."""

    tool: str
    times: int


class RoundsExceeded(Fact, frozen=True):
    """The model called tools for too many rounds and must answer in text."""

    rounds: int


class RoundsMade(Fact, frozen=True):
    """The history has many `rounds` since the last user message; no action was taken."""

    rounds: int


class FailuresNoticed(Fact, frozen=True):
    """The history ends with `rounds` rounds in which every call failed."""

    rounds: int


class RejectedReply(Fact, frozen=True):
    """A reply was rejected; `defect` is from a closed list."""

    defect: str

    def terms(self) -> dict[str, str]:
        unknown = f"The reply was rejected ({cut(self.defect)}).", cut(self.defect)
        sentence, few = WORDS.defects.get(self.defect, unknown)
        return {"text": sentence, "few": few}


class ClosedOut(Fact, frozen=True):
    """A close-out check was made; `cause` and `result` are from closed lists."""

    cause: str
    result: str

    def terms(self) -> dict[str, str]:
        why = WORDS.causes.get(self.cause, cut(self.cause))
        return {"why": why, "text": WORDS.checks.get(self.result, cut(self.result))}


class AnswerLimited(Fact, frozen=True):
    """The client's limit for the answer was lowered to the free `tokens` of the window."""

    tokens: int


class Withheld(Fact, frozen=True):
    """A retry was skipped, because too many others are running."""


class Resent(Fact, frozen=True):
    """A server failed during its generation, so another server answered the request again."""


class BrokeOff(Fact, frozen=True):
    """A partly streamed call of this tool never became valid."""

    tool: str


class LadderEnded(Fact, frozen=True):
    """No attempts were left; the client received the usable part of the replies."""

    defect: str


class Compacted(Fact, frozen=True, rename={"window": "n_ctx"}):
    """The compaction of a conversation; tier 0 means that nothing was changed.

    `sent` and `client` are the prompt's tokens as sent upstream and as received, `window` is the
    size of the window. `cleared` results were shortened, `folded` groups and turns are only in the
    digest. `epoch` counts the cuts so far; `is_new` means that this request made the last one.
    `answer` is the space left for the answer if it is less than the reserve; otherwise None.
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

    @property
    def is_shortened(self) -> bool:
        """Whether the sent prompt was cut; it was not if the cut was only reported."""
        return self.sent < self.client

    def __str__(self) -> str:
        tight = "" if self.answer is None else f"; answer={self.answer}"
        return (
            f"n_ctx={self.window}; sent={self.sent}; client={self.client}; tier={self.tier}; "
            f"cleared={self.cleared}; folded={self.folded}; epoch={self.epoch}{tight}"
        )

    def words(self) -> Words | None:
        return super().words() if self.is_new else None  # an earlier cut is no news


class WindowFilled(Fact, frozen=True):
    """The answer ended because the window (in tokens) was full."""

    window: int

    def __str__(self) -> str:
        return "filled=1"


class ToolRan(Fact, frozen=True):
    """An operator's tool was called in the given round; `status` is the result."""

    server: str
    tool: str
    status: str
    round: int


class ReplyOutcome(Enum):
    """The outcome of a request, in increasing order of intervention."""

    CLEAN = "clean"
    REPAIRED = "repaired"
    RETRIED = "retried"
    EXHAUSTED = "exhausted"


# the outcome is `repaired` if one of these happened
_MENDINGS: frozenset[type[Fact]] = frozenset(
    (Rescued, Repaired, Coerced, Renamed, Dropped, LoopNoticed, RoundsExceeded, FailuresNoticed)
)


def cut(text: str, longest: int = 120) -> str:
    """Cut a foreign text to `longest` characters."""
    return text if len(text) <= longest else text[:longest] + "..."


_ANNOUNCED = RejectedReply("announced")


def explain_end(attempts: int, defect: str, objection: str) -> str:
    """Return the sentence that replaces a missing answer, with the reason."""
    times = "1 attempt" if attempts == 1 else f"{attempts} attempts"
    _, few = WORDS.defects[defect]
    about = f" ({cut(objection, 300)})" if objection else ""
    return f"The model gave no usable reply in {times}: {few}{about}."


def attempts(facts: Iterable[Fact]) -> int:
    """Count the requested generations."""
    return [*map(type, facts)].count(Asked)


class JudgedAttempt(msgspec.Struct, frozen=True, gc=False):
    """A generation and its `defect`, None if it was accepted."""

    kind: str
    defect: str | None = None


def judged_attempts(facts: Iterable[Fact]) -> tuple[JudgedAttempt, ...]:
    """Return each requested generation with its defect."""
    judged: list[JudgedAttempt] = []
    for fact in facts:
        if isinstance(fact, Asked):
            judged.append(JudgedAttempt(fact.kind))
        elif isinstance(fact, RejectedReply) and judged:
            judged[-1] = JudgedAttempt(judged[-1].kind, fact.defect)
    return tuple(judged)


# The same facts are formatted for headers, log line and record of a response.
_worded = lru_cache(maxsize=64)


@_worded
def outcome(facts: tuple[Fact, ...]) -> ReplyOutcome:
    """Return the outcome of a request."""
    kinds: list[type[Fact]] = [*map(type, facts)]
    if LadderEnded in kinds or BrokeOff in kinds:
        return ReplyOutcome.EXHAUSTED
    again = kinds.count(Asked) - 1
    if again > 0:  # a close-out check counts as a retry only if it added calls
        # each round of operator's tools is followed by a generation, which is not a retry
        again -= len({fact.round for fact in facts if isinstance(fact, ToolRan)})
        checks = [fact for fact in facts if isinstance(fact, ClosedOut)]
        again -= facts.count(Asked("close_out")) - sum(check.result == "called" for check in checks)
    if again > 0:
        return ReplyOutcome.RETRIED
    return ReplyOutcome.CLEAN if _MENDINGS.isdisjoint(kinds) else ReplyOutcome.REPAIRED


def last_defect(facts: Iterable[Fact]) -> str | None:
    """Return the defect of the last attempt, if no attempts were left."""
    return next((fact.defect for fact in facts if isinstance(fact, LadderEnded)), None)


@_worded
def repairs(facts: tuple[Fact, ...]) -> str:
    """Return the value of `x-temper-repairs`, e.g. `rescued=hermes;rejected=prose;coerced=2`.

    Syntaxes, defects and looping tools are named, other repairs are counted. `rounds` and
    `failures` are numbers of tool rounds.
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
    """Return the outcome headers: `attempts`, `outcome`, and others that are not empty."""
    headers = {
        "attempts": str(attempts(facts)),
        "outcome": outcome(facts).value,
        "repairs": repairs(facts),
        "context": context(facts),
        "tools": tools(facts),
    }
    return {name: value for name, value in headers.items() if value}


@_worded
def tools(facts: tuple[Fact, ...]) -> str:
    """Count the calls of operator's tools per server, e.g. `search=2, time=1`."""
    servers = [fact.server for fact in facts if isinstance(fact, ToolRan)]
    return ", ".join(f"{server}={servers.count(server)}" for server in dict.fromkeys(servers))


@_worded
def context(facts: tuple[Fact, ...]) -> str:
    """Return the value of `x-temper-context`, "" if tokens were not counted."""
    return "; ".join([str(fact) for fact in facts if isinstance(fact, (Compacted, WindowFilled))])
