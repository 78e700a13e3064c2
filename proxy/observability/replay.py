"""Judges recorded exchanges again, offline, with the guardrails and profiles of today."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from proxy.conversation.json import JsonObject
from proxy.conversation.replies import ReplyFinished, ReplyInProgress
from proxy.conversation.requests import Question
from proxy.errors import InvalidConfiguration, InvalidRequest
from proxy.facts import outcome, repairs, tries
from proxy.observability.escaping import escaped
from proxy.observability.recording import RecordedExchange, read_recording
from proxy.observability.replayed_turns import ReplayedTurns, lost_generations
from proxy.profiles.files import load_profiles
from proxy.profiles.profile import Profile

_LONGEST_SHOWN = 200


@dataclass(frozen=True, slots=True)
class Change:
    """Something that is not as it was; `what` names it, e.g. `outcome` or `calls.0.arguments`."""

    what: str
    before: str
    now: str


@dataclass(frozen=True, slots=True)
class Replayed:
    """An exchange that was judged again; one that never came to its end cannot be."""

    id: str
    model: str
    changes: tuple[Change, ...] = ()
    is_complete: bool = True

    @property
    def status(self) -> str:
        """Tell in a word how it compares."""
        if not self.is_complete:
            return "incomplete"
        return "changed" if self.changes else "same"


@dataclass(slots=True)
class _Judged:
    """What an exchange comes to, by name: the verdict and the answer."""

    text: str = ""
    calls: list[tuple[str, str]] = field(default_factory=list)
    finish_reason: str | None = None
    outcome: str = ""
    attempts: str = ""
    repairs: str = ""

    def named(self) -> dict[str, str]:
        values = {
            "outcome": self.outcome,
            "attempts": self.attempts,
            "repairs": self.repairs,
            "text": self.text,
            "finish_reason": self.finish_reason or "",
        }
        for index, (name, arguments) in enumerate(self.calls):
            values |= {f"calls.{index}.name": name, f"calls.{index}.arguments": arguments}
        return values


def replay_file(path: Path, folder: Path | None) -> list[Replayed]:
    """Judge all exchanges of a recording again, with our profiles and those in a folder.

    Raises `InvalidConfiguration` if the file is no recording.
    """
    profiles = load_profiles(folder)
    try:
        with closing(read_recording(path)) as exchanges:
            return [replay(exchange, profiles) for exchange in exchanges]
    except ValueError as error:
        raise InvalidConfiguration(str(path), str(error)) from error


def document(replayed: Sequence[Replayed]) -> JsonObject:
    """Return the outcome for programs."""
    return {
        "changed": sum(bool(one.changes) for one in replayed),
        "exchanges": [
            {
                "id": one.id,
                "model": one.model,
                "status": one.status,
                "changes": [
                    {"what": change.what, "before": change.before, "now": change.now}
                    for change in one.changes
                ],
            }
            for one in replayed
        ],
    }


def summary(replayed: Sequence[Replayed]) -> Iterator[str]:
    """Return the outcome for people, line by line and safe to show on a terminal."""
    for one in replayed:
        yield escaped(f"{one.id}  {one.model}: {one.status}")
        for change in one.changes:
            yield f"    {change.what}: {_shown(change.before)} -> {_shown(change.now)}"
    count = sum(bool(one.changes) for one in replayed)
    yield f"{count} of {len(replayed)} changed"


def replay(exchange: RecordedExchange, profiles: Sequence[Profile]) -> Replayed:
    """Judge an exchange again and tell what changed; raises ValueError if it makes no sense."""
    model = str(exchange.request.get("model", ""))
    if exchange.verdict.outcome is None:
        return Replayed(exchange.id, model, is_complete=False)
    before, now = _as_recorded(exchange).named(), _as_judged(exchange, profiles).named()
    changes = tuple(
        Change(name, before.get(name, ""), now.get(name, ""))
        for name in dict.fromkeys((*before, *now))
        if before.get(name, "") != now.get(name, "")
    )
    return Replayed(exchange.id, model, changes)


def questions_of(exchange: RecordedExchange, profiles: Sequence[Profile]) -> list[Question]:
    """Return what the model is asked for the generations of an exchange, and what comes next.

    Raises `InvalidRequest`, and ValueError if the exchange makes no sense.
    """
    turns = ReplayedTurns(exchange, profiles)
    for _ in turns.events():
        pass
    following = turns.following
    return [*turns.asked, following] if following is not None else turns.asked


def _as_recorded(exchange: RecordedExchange) -> _Judged:
    verdict, answer = exchange.verdict, exchange.answer
    return _Judged(
        answer.text,
        [(call.name, call.arguments) for call in answer.calls],
        answer.finish_reason,
        verdict.outcome or "",
        _worded(verdict.attempts[lost_generations(exchange) :]),
        verdict.repairs,
    )


def _as_judged(exchange: RecordedExchange, profiles: Sequence[Profile]) -> _Judged:
    judged, answer = _Judged(), ReplyInProgress()
    turns = ReplayedTurns(exchange, profiles)
    try:
        for event in turns.events():
            answer.add(event)
            if isinstance(event, ReplyFinished):
                judged.finish_reason = event.reason
    except InvalidRequest as error:
        judged.outcome = f"refused: {error}"
        return judged
    whole, facts = answer.finish(""), turns.facts
    judged.text = whole.text
    judged.calls = [(call.name, str(call.arguments)) for call in whole.calls]
    judged.outcome = turns.unfinished or outcome(facts).value
    judged.attempts = _worded([(one.kind, one.defect) for one in tries(facts)])
    judged.repairs = repairs(facts)
    return judged


def _worded(attempts: Sequence[tuple[str, str | None]]) -> str:
    return ", ".join(f"{reason} ({defect or 'accepted'})" for reason, defect in attempts)


def _shown(value: str) -> str:
    """Make a value fit for a line."""
    short = value if len(value) <= _LONGEST_SHOWN else value[:_LONGEST_SHOWN] + "..."
    return escaped(short) or "(nothing)"
