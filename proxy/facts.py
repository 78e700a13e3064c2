"""The facts of a request: its events as data, for log lines, metrics and outcome headers.

The texts of facts are in `words.toml`, for log lines, terminals and the dashboard.
"""

from collections.abc import Iterable
from enum import Enum
from functools import lru_cache
from importlib.resources import files
from typing import ClassVar, NamedTuple

import msgspec


class Wording(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Texts for a class of facts; the comments in `words.toml` describe the fields."""

    name: str = ""
    listed: str = ""
    sentence: str = ""
    few: str = ""
    several: str = ""


class WordLists(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The tables of `words.toml`: texts for facts and for enumerations."""

    facts: dict[str, Wording]
    defects: dict[str, tuple[str, str]]
    dropped: dict[str, str]
    healed: dict[str, str]
    attempts: dict[str, str]
    causes: dict[str, str]
    checks: dict[str, str]
    fallbacks: dict[str, str]
    errors: dict[str, str]
    outcomes: dict[str, tuple[str, str]]
    stages: dict[str, str]
    departures: dict[str, str]


# read on import, because each class of facts takes its texts from the tables
WORDS = msgspec.toml.decode((files("proxy") / "words.toml").read_bytes(), type=WordLists)


class Words(NamedTuple):
    """The texts of a fact: a sentence, and two forms for log lines.

    Log lines contain `few` for one fact and `several` for more; a fact without `few` is not logged.
    """

    sentence: str
    few: str
    several: str


# gc=False saves time: each request creates several facts, which cannot form reference cycles
class Fact(msgspec.Struct, frozen=True, gc=False):
    """An event of a request; `wording` contains the templates of its texts."""

    wording: ClassVar[Wording] = Wording()

    def __init_subclass__(cls) -> None:
        cls.wording = WORDS.facts.get(cls.__name__, Wording())

    @property
    def name(self) -> str:
        return self.wording.name

    def placeholders(self) -> dict[str, str]:
        """Return the values for the templates: foreign text is cut to a length but not escaped."""
        return {name: cut(str(value)) for name, value in msgspec.structs.asdict(self).items()}

    def words(self) -> Words | None:
        """Return the texts of this fact; None if it is not shown."""
        wording = self.wording
        if not wording.sentence:
            return None
        placeholders = self.placeholders()
        sentence, few = wording.sentence.format(**placeholders), wording.few.format(**placeholders)
        return Words(sentence, few, wording.several)


class Asked(Fact, frozen=True):
    """An upstream request was sent; `kind` is the kind of attempt."""

    kind: str


class Rescued(Fact, frozen=True):
    """A call that the model wrote as text became a structured call."""

    syntax: str
    tool: str


class Refused(Fact, frozen=True):
    """Text that looked like a call was kept as text; `reason` is from a closed list."""

    reason: str

    def placeholders(self) -> dict[str, str]:
        return {"why": cut(self.reason).replace("_", " ")}


class Repaired(Fact, frozen=True):
    """Invalid JSON in the arguments of a call was repaired."""

    tool: str


class Coerced(Fact, frozen=True):
    """A value of the wrong type was converted without loss; `pointer` is a JSON pointer."""

    tool: str
    pointer: str

    def placeholders(self) -> dict[str, str]:
        return {"value": cut(self.pointer) or "A value", "tool": cut(self.tool)}


class Renamed(Fact, frozen=True):
    """A misspelled tool name was replaced by the only tool it can mean."""

    written: str
    tool: str


class Dropped(Fact, frozen=True):
    """A part of the reply was removed; `what` is from a closed list."""

    what: str

    def placeholders(self) -> dict[str, str]:
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

    def placeholders(self) -> dict[str, str]:
        return {"repair": WORDS.healed.get(self.what, cut(self.what))}


class ReasoningRestored(Fact, frozen=True):
    """Temper restored the reasoning that the client omitted from `messages` messages."""

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
    """The model made many tool `rounds` since the last user message; Temper did not intervene."""

    rounds: int


class FailuresNoticed(Fact, frozen=True):
    """The history ends with `rounds` rounds in which every call failed."""

    rounds: int


class RejectedReply(Fact, frozen=True):
    """A reply was rejected; `defect` is from a closed list."""

    defect: str

    def placeholders(self) -> dict[str, str]:
        unknown = f"The reply was rejected ({cut(self.defect)}).", cut(self.defect)
        sentence, few = WORDS.defects.get(self.defect, unknown)
        return {"text": sentence, "few": few}


class ClosedOut(Fact, frozen=True):
    """A close-out check was made; `cause` and `result` are from closed lists."""

    cause: str
    result: str

    def placeholders(self) -> dict[str, str]:
        why = WORDS.causes.get(self.cause, cut(self.cause))
        return {"why": why, "text": WORDS.checks.get(self.result, cut(self.result))}


class AnswerLimited(Fact, frozen=True):
    """The client's max_tokens was lowered to the free `tokens` of the window."""

    tokens: int


class Withheld(Fact, frozen=True):
    """A retry was skipped, because too many other retries were running."""


class Resent(Fact, frozen=True):
    """A server failed during the generation, so the request was sent to another server."""


class BrokeOff(Fact, frozen=True):
    """A part of a call of this tool was streamed, but the call was never completed."""

    tool: str


class LadderEnded(Fact, frozen=True):
    """No attempts were left; the client received the usable part of the replies."""

    defect: str


class Compacted(Fact, frozen=True, rename={"window": "n_ctx"}):
    """The compaction of a conversation; tier 0 means that nothing was changed.

    The prompt had `client` tokens as received, and `sent` tokens as sent to the backend; the window
    has `window` tokens. `cleared` tool results were shortened, and `folded` groups and turns were
    replaced by the digest. `epoch` counts the cuts so far. `is_new` means that this request made
    the last cut. `answer` is None if the whole reserve remains for the answer; otherwise it is the
    number of remaining tokens.
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
        """True if the sent prompt was cut; False if the cut was only reported (REPORT mode)."""
        return self.sent < self.client

    def __str__(self) -> str:
        tight = "" if self.answer is None else f"; answer={self.answer}"
        return (
            f"n_ctx={self.window}; sent={self.sent}; client={self.client}; tier={self.tier}; "
            f"cleared={self.cleared}; folded={self.folded}; epoch={self.epoch}{tight}"
        )

    def words(self) -> Words | None:
        return super().words() if self.is_new else None  # an earlier cut was already logged


class FellBack(Fact, frozen=True):
    """The fallback `model` was used after all rejected attempts; `result` is from a closed list."""

    model: str
    result: str

    def placeholders(self) -> dict[str, str]:
        text = WORDS.fallbacks.get(self.result, cut(self.result))
        return {"model": cut(self.model), "text": text}


class WindowFilled(Fact, frozen=True):
    """The answer ended because the window (in tokens) was full."""

    window: int

    def __str__(self) -> str:
        return "filled=1"


class ToolRan(Fact, frozen=True):
    """Temper called a tool of the operator in tool round `round`; `status` is the result."""

    server: str
    tool: str
    status: str
    round: int


class ReplyOutcome(Enum):
    """The outcome of a request; a later member means that Temper intervened more."""

    CLEAN = "clean"
    REPAIRED = "repaired"
    RETRIED = "retried"
    FALLBACK = "fallback"
    EXHAUSTED = "exhausted"


# facts that make the outcome of a request `repaired`
_REPAIRING: frozenset[type[Fact]] = frozenset(
    (Rescued, Repaired, Coerced, Renamed, Dropped, LoopNoticed, RoundsExceeded, FailuresNoticed)
)


def cut(text: str, longest: int = 120) -> str:
    """Cut a text to `longest` characters, plus dots."""
    return text if len(text) <= longest else text[:longest] + "..."


_ANNOUNCED = RejectedReply("announced")


def explain_end(attempts: int, defect: str, objection: str) -> str:
    """Return the sentence that the client receives instead of an answer, with the reason."""
    count = "1 attempt" if attempts == 1 else f"{attempts} attempts"
    _, few = WORDS.defects[defect]
    details = f" ({cut(objection, 300)})" if objection else ""
    return f"The model gave no usable reply in {count}: {few}{details}."


def attempts(facts: Iterable[Fact]) -> int:
    """Count the upstream requests."""
    return [*map(type, facts)].count(Asked)


class JudgedAttempt(msgspec.Struct, frozen=True, gc=False):
    """An upstream request and the `defect` of its reply, None if the reply was accepted."""

    kind: str
    defect: str | None = None


def judged_attempts(facts: Iterable[Fact]) -> tuple[JudgedAttempt, ...]:
    """Return each upstream request with the defect of its reply."""
    judged: list[JudgedAttempt] = []
    for fact in facts:
        if isinstance(fact, Asked):
            judged.append(JudgedAttempt(fact.kind))
        elif isinstance(fact, RejectedReply) and judged:
            judged[-1] = JudgedAttempt(judged[-1].kind, fact.defect)
    return tuple(judged)


# cached, because the headers, the log line and the record of a response format the same facts
_cached = lru_cache(maxsize=64)


@_cached
def outcome(facts: tuple[Fact, ...]) -> ReplyOutcome:
    """Return the outcome of a request."""
    kinds: list[type[Fact]] = [*map(type, facts)]
    if LadderEnded in kinds or BrokeOff in kinds:
        return ReplyOutcome.EXHAUSTED
    if any(isinstance(fact, FellBack) and fact.result == "answered" for fact in facts):
        return ReplyOutcome.FALLBACK
    retries = kinds.count(Asked) - 1
    if retries > 0:
        # each round of the operator's tools needs one more upstream request, which is not a retry
        retries -= len({fact.round for fact in facts if isinstance(fact, ToolRan)})
        # a close-out check counts as a retry only if it added calls
        added_calls = sum(isinstance(f, ClosedOut) and f.result == "called" for f in facts)
        retries -= facts.count(Asked("close_out")) - added_calls
    if retries > 0:
        return ReplyOutcome.RETRIED
    return ReplyOutcome.CLEAN if _REPAIRING.isdisjoint(kinds) else ReplyOutcome.REPAIRED


def last_defect(facts: Iterable[Fact]) -> str | None:
    """Return the defect of the last attempt if all attempts were rejected, else None."""
    return next((fact.defect for fact in facts if isinstance(fact, LadderEnded)), None)


@_cached
def repairs(facts: tuple[Fact, ...]) -> str:
    """Return the value of `x-temper-repairs`, e.g. `rescued=hermes;rejected=prose;coerced=2`.

    Some facts list their details, such as the syntax or the defect; others are counted. `rounds`
    and `failures` are numbers of tool rounds.
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
    """Return the outcome headers without their prefix; empty headers are omitted."""
    headers = {
        "attempts": str(attempts(facts)),
        "outcome": outcome(facts).value,
        "repairs": repairs(facts),
        "context": context(facts),
        "tools": tools(facts),
        "fallback": fallback(facts),
    }
    return {name: value for name, value in headers.items() if value}


@_cached
def tools(facts: tuple[Fact, ...]) -> str:
    """Count the calls of the operator's tools per server, e.g. `search=2, time=1`."""
    servers = [fact.server for fact in facts if isinstance(fact, ToolRan)]
    return ", ".join(f"{server}={servers.count(server)}" for server in dict.fromkeys(servers))


def fallback(facts: tuple[Fact, ...]) -> str:
    """Return the name and the result of each fallback that was used, e.g. `big=answered`."""
    results = [fact for fact in facts if isinstance(fact, FellBack)]
    return ", ".join(f"{cut(fact.model)}={fact.result}" for fact in results)


@_cached
def context(facts: tuple[Fact, ...]) -> str:
    """Return the value of `x-temper-context`, "" if tokens were not counted."""
    return "; ".join([str(fact) for fact in facts if isinstance(fact, (Compacted, WindowFilled))])
