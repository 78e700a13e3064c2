"""The permitted outcomes of a request, and the check of an outcome. Pure functions.

A request is lost if its client gets anything but a right answer or a permitted error.
"""

from dataclasses import dataclass, field
from enum import Enum

from proxy.conversation.json import JsonObject

_APOLOGY, _BROKEN_OFF = "The model gave no usable reply", "is incomplete after"


class Kind(Enum):
    """The kind of a response; after the start of a stream, errors can only be sent as an event."""

    ANSWER = "answer"
    ERROR = "error"
    ERROR_EVENT = "error event"
    LEFT = "client left"
    NOTHING = "nothing whole"


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a tool."""

    name: str
    arguments: JsonObject


@dataclass(frozen=True, slots=True)
class Wanted:
    """A right answer."""

    text: str = ""
    calls: tuple[Call, ...] = ()
    reason: str = "stop"
    thoughts: str = ""


@dataclass(frozen=True, slots=True)
class Demand:
    """The permitted outcomes of a request.

    `answers` are right at any time; `withheld` answers only if a retry was due, Temper fell back to
    an earlier attempt and reports that. `failures` are the permitted status codes; a stream may
    show a beginning of `shown` and `thoughts` before its error event. A backend that `is_endless`
    repeats its text forever, and any beginning of that is right. With `has_apology`, the answer may
    be a sentence that says that the model gave no usable reply, after `shown`. With `may_break_off`
    a streamed call that no retry has continued may end with an error. `attempts` limits the
    upstream requests.
    """

    answers: tuple[Wanted, ...] = ()
    withheld: tuple[Wanted, ...] = ()
    failures: frozenset[int] = frozenset()
    shown: str = ""
    thoughts: str = ""
    is_endless: bool = False
    has_apology: bool = False
    may_break_off: bool = False
    attempts: int = 1


@dataclass(slots=True)
class Seen:
    """The response as the client read it; `problem` describes a malformed response.

    `report` holds the metadata that Temper adds to its response.
    """

    status: int = 0
    text: str = ""
    thoughts: str = ""
    calls: list[Call] = field(default_factory=list)
    reason: str = ""
    error: JsonObject | None = None
    report: dict[str, str] = field(default_factory=dict)
    is_stream: bool = False
    is_done: bool = False
    is_disconnected: bool = False
    problem: str = ""

    @property
    def kind(self) -> Kind:
        if self.is_disconnected:
            return Kind.LEFT
        if self.error is not None:
            return Kind.ERROR_EVENT if self.is_stream else Kind.ERROR
        return Kind.ANSWER if self.is_done else Kind.NOTHING


def problem_of(demand: Demand, seen: Seen) -> str:
    """Return why a request is lost; "" if it is not."""
    if seen.problem:
        return seen.problem
    match seen.kind:
        case Kind.LEFT:
            return ""
        case Kind.NOTHING:
            return "the answer ended without an end and without an error"
        case Kind.ERROR | Kind.ERROR_EVENT:
            return _problem_of_error(demand, seen)
        case Kind.ANSWER:
            return _problem_of_answer(demand, seen)


def _problem_of_error(demand: Demand, seen: Seen) -> str:
    error = f"{seen.status}: {seen.error}"
    if demand.may_break_off and seen.is_stream and _BROKEN_OFF in error and not seen.calls:
        return ""
    if not demand.failures:
        return f"an error where none was due, {error}"
    if seen.kind is Kind.ERROR and seen.status not in demand.failures:
        return f"an error with another status than {sorted(demand.failures)}, {error}"
    if seen.calls:
        return f"a call before an error: {seen.calls}"
    if _begins(demand, seen.text, demand.shown) and demand.thoughts.startswith(seen.thoughts):
        return ""
    return f"before an error the client saw {seen.text[:200]!r}, {seen.thoughts[:200]!r}"


def _problem_of_answer(demand: Demand, seen: Seen) -> str:
    if any(_equals(wanted, demand, seen) for wanted in demand.answers):
        return ""
    before, apology, _ = seen.text.partition(_APOLOGY)
    if demand.has_apology and apology and not seen.calls and before.rstrip() in ("", demand.shown):
        return ""
    is_withheld = "withheld=" in seen.report.get("repairs", "")
    if is_withheld and any(_equals(wanted, demand, seen) for wanted in demand.withheld):
        return ""
    got = f"{seen.text[:200]!r}, {seen.calls}, {seen.reason!r}, {seen.report}"
    wanted = demand.answers or "an error"
    return f"another answer than {str(wanted)[:400]}: {got}"


def _equals(wanted: Wanted, demand: Demand, seen: Seen) -> bool:
    is_text = seen.text == wanted.text
    if demand.is_endless:
        is_text = bool(seen.text) and _begins(demand, seen.text, wanted.text)
    return (
        is_text
        and tuple(seen.calls) == wanted.calls
        and seen.reason == wanted.reason
        and seen.thoughts == wanted.thoughts
    )


def _begins(demand: Demand, seen: str, text: str) -> bool:
    """Return whether a text is the beginning of the expected text, which may be repeated."""
    if demand.is_endless:
        text *= len(seen) // len(text) + 1
    return text.startswith(seen)
