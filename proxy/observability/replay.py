"""Judges recorded exchanges again, offline, with the guardrails and profiles of today."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from proxy.context.compaction import NoCompaction
from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.conversation.replies import ReplyEvent, ReplyFinished, ReplyInProgress
from proxy.conversation.requests import Question
from proxy.conversation.workflows import NO_RULES
from proxy.dialects.openai_chat.decode import decode_request
from proxy.errors import GuardrailsExhausted, InvalidConfiguration, InvalidRequest
from proxy.facts import outcome, repairs, tries
from proxy.guardrails.traits import Traits
from proxy.inference.preparation import Policy, begin, plan_request
from proxy.inference.turn import State, Turn
from proxy.observability.escaping import escaped
from proxy.observability.exchange_recorder import ENDINGS, FAILED, event_of
from proxy.observability.recording import (
    Piece,
    RecordedExchange,
    RecordedModel,
    RecordedPolicy,
    read_recording,
)
from proxy.profiles.files import load_profiles
from proxy.profiles.known_model import Overrides, introduce
from proxy.profiles.profile import GENERIC, Profile
from proxy.profiles.recognition import Evidence

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
        return [replay(exchange, profiles) for exchange in read_recording(path)]
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
    turn, asked = _turn(exchange, profiles), list[Question]()
    with suppress(GuardrailsExhausted):
        for _ in _answers(turn, _heard(exchange), asked):
            pass
    following = turn.next_question() if turn.state is State.ASKING else None
    return [*asked, following] if following is not None else asked


def _as_recorded(exchange: RecordedExchange) -> _Judged:
    verdict, answer = exchange.verdict, exchange.answer
    return _Judged(
        answer.text,
        [(call.name, call.arguments) for call in answer.calls],
        answer.finish_reason,
        verdict.outcome or "",
        _worded(verdict.attempts[len(exchange.generations) - len(_heard(exchange)) :]),
        verdict.repairs,
    )


def _as_judged(exchange: RecordedExchange, profiles: Sequence[Profile]) -> _Judged:
    judged, answer = _Judged(), ReplyInProgress()
    try:
        turn = _turn(exchange, profiles)
    except InvalidRequest as error:
        judged.outcome = f"refused: {error}"
        return judged
    try:
        for events in _answers(turn, _heard(exchange), []):
            for event in events:
                answer.add(event)
                if isinstance(event, ReplyFinished):
                    judged.finish_reason = event.reason
    except GuardrailsExhausted:
        pass
    whole = answer.finish("")
    judged.text = whole.text
    judged.calls = [(call.name, str(call.arguments)) for call in whole.calls]
    unfinished = "asks again" if turn.state is State.ASKING else "fails"
    is_over = turn.state is State.DONE
    judged.outcome = outcome(turn.facts).value if is_over else unfinished
    judged.attempts = _worded([(one.rung, one.defect) for one in tries(turn.facts)])
    judged.repairs = repairs(turn.facts)
    return judged


def _answers(
    turn: Turn, generations: Sequence[Sequence[Piece]], asked: list[Question]
) -> Iterator[Sequence[ReplyEvent]]:
    """Put each question of a turn to the recording, as long as it knows an answer.

    What was `asked` is added to the list.
    """
    for pieces in generations:
        *before, last = pieces or (["nothing"],)
        if last[0] not in ENDINGS or any(piece[0] in ENDINGS for piece in before):
            raise ValueError(f"a generation has to end with one of {', '.join(ENDINGS)}")
        question = turn.next_question()
        if question is None:
            return
        asked.append(question)
        for piece in before:
            yield turn.receive(event_of(piece))
        if last[0] != FAILED:
            yield turn.receive(event_of(last))
        elif events := turn.abandon():
            yield events
        else:
            return


def _turn(exchange: RecordedExchange, profiles: Sequence[Profile]) -> Turn:
    request = decode_request(json.dump(exchange.request))
    traits = _traits(exchange.model, profiles)
    written = plan_request(request, _policy(exchange.policy, traits))
    was_withheld = "withheld" in exchange.verdict.repairs
    leave = iter(range(len(_heard(exchange)) - 1))

    def may_retry() -> bool:
        """Give the same leave as then: it depended on everybody else's requests."""
        return not was_withheld or next(leave, None) is not None

    return begin(written, lambda: "call", may_retry, NoCompaction())


def _heard(exchange: RecordedExchange) -> tuple[tuple[Piece, ...], ...]:
    """Return the generations of the turn that gave the answer, not one that proved too long."""
    first = exchange.generations[0] if exchange.generations else ()
    is_lost = first[-1:] == ([FAILED, "context_overflow"],)
    return exchange.generations[is_lost:]


def _traits(recorded: RecordedModel, profiles: Sequence[Profile]) -> Traits:
    known = {profile.name: profile for profile in (*profiles, GENERIC)}
    chosen = known.get(recorded.profile) if recorded.profile is not None else None
    evidence = Evidence(
        recorded.names, recorded.architecture, recorded.template, recorded.takes_tools
    )
    overrides = Overrides(chosen, recorded.convention, recorded.replay)
    return introduce("", evidence, profiles, overrides).traits


def _policy(recorded: RecordedPolicy, traits: Traits) -> Policy:
    return Policy(
        traits,
        recorded.text_policy,
        recorded.attempts,
        recorded.is_strict,
        recorded.mode,
        recorded.most_repeats,
        recorded.most_rounds,
        recorded.workflow or NO_RULES,
        recorded.streams_calls,
        recorded.most_failures,
    )


def _worded(attempts: Sequence[tuple[str, str | None]]) -> str:
    return ", ".join(f"{reason} ({defect or 'accepted'})" for reason, defect in attempts)


def _shown(value: str) -> str:
    """Make a value fit for a line."""
    short = value if len(value) <= _LONGEST_SHOWN else value[:_LONGEST_SHOWN] + "..."
    return escaped(short) or "(nothing)"
