"""The permitted outcomes of a request, and the check of an outcome. Pure functions.

A request is lost if its client receives neither a right answer nor a permitted error.
"""

from dataclasses import dataclass, field
from enum import Enum

from proxy.conversation.json import JsonObject

_APOLOGY, _BROKEN_OFF = "The model gave no usable reply", "is incomplete after"


class Kind(Enum):
    """The kind of a response; in a stream that has begun, an error is an event."""

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
class RightAnswer:
    """The text, calls, finish reason and reasoning of a permitted answer."""

    text: str = ""
    calls: tuple[Call, ...] = ()
    reason: str = "stop"
    thoughts: str = ""


@dataclass(frozen=True, slots=True)
class Demand:
    """The permitted outcomes of a request.

    - Any of the `answers` is permitted.
    - If Temper reports that it made no further attempt, any answer in `withheld` is permitted, also
      with an apology added to its text.
    - An error with a status code in `failures` is permitted. In a stream, the error event may
      follow a beginning of the text `shown` and of the reasoning `thoughts`.
    - If `is_endless`, the backend repeats the text endlessly, and any beginning of it is permitted.
    - If `has_apology`, the sentence "The model gave no usable reply" is permitted after `shown`.
    - If `may_break_off`, an error is permitted after a part of a call was streamed.
    - At most `attempts` upstream requests are permitted.
    """

    answers: tuple[RightAnswer, ...] = ()
    withheld: tuple[RightAnswer, ...] = ()
    failures: frozenset[int] = frozenset()
    shown: str = ""
    thoughts: str = ""
    is_endless: bool = False
    has_apology: bool = False
    may_break_off: bool = False
    attempts: int = 1


@dataclass(slots=True)
class Received:
    """The response that a client received; `problem` describes a malformed response.

    `report` has the metadata that Temper adds to its response.
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


def problem_of(demand: Demand, received: Received) -> str:
    """Return the reason why a request is lost; "" if it is not lost."""
    if received.problem:
        return received.problem
    match received.kind:
        case Kind.LEFT:
            return ""
        case Kind.NOTHING:
            return "the response has neither an end nor an error"
        case Kind.ERROR | Kind.ERROR_EVENT:
            return _problem_of_error(demand, received)
        case Kind.ANSWER:
            return _problem_of_answer(demand, received)


def _problem_of_error(demand: Demand, received: Received) -> str:
    error = f"{received.status}: {received.error}"
    if demand.may_break_off and received.is_stream and _BROKEN_OFF in error and not received.calls:
        return ""
    if not demand.failures:
        return f"an error where none is permitted, {error}"
    if received.kind is Kind.ERROR and received.status not in demand.failures:
        return f"an error with a status not in {sorted(demand.failures)}, {error}"
    if received.calls:
        return f"a call before an error: {received.calls}"
    if _begins(demand, received.text, demand.shown) and demand.thoughts.startswith(
        received.thoughts
    ):
        return ""
    return (
        f"before an error the client received {received.text[:200]!r}, {received.thoughts[:200]!r}"
    )


def _problem_of_answer(demand: Demand, received: Received) -> str:
    if any(_equals(wanted, demand, received) for wanted in demand.answers):
        return ""
    before, apology, _ = received.text.partition(_APOLOGY)
    is_withheld = "withheld=" in received.report.get("repairs", "")
    may_apologize = demand.has_apology or (is_withheld and bool(demand.withheld))
    shown = {"", demand.shown, *(answer.text for answer in demand.withheld)}
    if may_apologize and apology and not received.calls and before.rstrip() in shown:
        return ""
    if is_withheld and any(_equals(wanted, demand, received) for wanted in demand.withheld):
        return ""
    got = f"{received.text[:200]!r}, {received.calls}, {received.reason!r}, {received.report}"
    wanted = demand.answers or "an error"
    return f"expected {str(wanted)[:400]}, got {got}"


def _equals(wanted: RightAnswer, demand: Demand, received: Received) -> bool:
    is_text = received.text == wanted.text
    if demand.is_endless:
        is_text = bool(received.text) and _begins(demand, received.text, wanted.text)
    return (
        is_text
        and tuple(received.calls) == wanted.calls
        and received.reason == wanted.reason
        and received.thoughts == wanted.thoughts
    )


def _begins(demand: Demand, received: str, text: str) -> bool:
    """Return whether `text` begins with what was received; an endless text may be repeated."""
    if demand.is_endless:
        text *= len(received) // len(text) + 1
    return text.startswith(received)
