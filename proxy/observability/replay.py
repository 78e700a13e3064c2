"""Plays recorded exchanges again, offline, with the guardrails and profiles of today.

No model is asked and no tool is run: the recording has what they said. `replay` tells what changed;
`before_after` shows each generation beside what was made of it. What Temper said between two
generations is not recorded, but made again.
"""

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import count, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from proxy.context.compaction import NoCompaction
from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.conversation.messages import Message
from proxy.conversation.replies import ReplyEvent, ReplyFinished, ReplyInProgress
from proxy.conversation.requests import Question, Request
from proxy.conversation.tools import ToolCall
from proxy.conversation.workflows import NO_RULES
from proxy.dialects.openai_chat.decode import decode_request
from proxy.errors import GuardrailsExhausted, InvalidConfiguration, InvalidRequest
from proxy.facts import Fact, ToolRan, last_defect, outcome, repairs, tries
from proxy.guardrails.model_quirks import Quirks
from proxy.inference.preparation import Policy, begin, plan_request
from proxy.inference.turn import Turn, TurnState
from proxy.observability.exchange_recorder import ENDINGS, FAILED, event_of
from proxy.observability.recording import (
    Piece,
    RecordedExchange,
    RecordedModel,
    RecordedOutcome,
    RecordedPolicy,
    RecordedRound,
    RecordedRun,
    read_recording,
)
from proxy.observability.sentences import escape
from proxy.profiles.files import load_profiles
from proxy.profiles.known_model import Overrides, introduce
from proxy.profiles.profile import GENERIC, Profile
from proxy.profiles.recognition import Evidence

if TYPE_CHECKING:  # nothing of runs is imported where there was none
    from proxy.tool_rounds.executor import Outcome
    from proxy.tool_rounds.run import Run

Generations: TypeAlias = tuple[tuple[Piece, ...], ...]


class ReplayedTurns:
    """The turns of one exchange as they go today; `asked` are the questions put so far."""

    def __init__(self, exchange: RecordedExchange, profiles: Sequence[Profile]) -> None:
        self.asked: list[Question] = []
        self._exchange = exchange
        self._policy = _policy(exchange.policy, _quirks(exchange.model, profiles))
        self._was_withheld = "withheld" in exchange.verdict.repairs
        self._turns: list[Turn] = []
        self._run: Run | None = None
        self._ran: list[ToolRan] = []
        self._numbers = count()
        self._unfinished = ""

    def events(self) -> Iterator[ReplyEvent]:
        """Return what the client gets, as far as the recording knows what the model says.

        Raises `InvalidRequest`, and ValueError if the exchange makes no sense.
        """
        request, run = decode_request(json.dump(self._exchange.request)), self._exchange.run
        try:
            if run is None:
                turn = self._begin(request, _select_generations(self._exchange.generations))
                yield from self._answers(turn, _select_generations(self._exchange.generations))
            else:
                yield from self._rounds(request, run)
        except GuardrailsExhausted as failure:
            if self._run is not None:
                self._run.fail(failure.defect)

    @property
    def facts(self) -> tuple[Fact, ...]:
        facts = [fact for turn in self._turns for fact in turn.facts]
        return (*facts, *(self._run.facts if self._run is not None else ()), *self._ran)

    @property
    def unfinished(self) -> str:
        turn = self._turns[-1]
        is_over = (
            self._run.stop is not None if self._run is not None else turn.state is TurnState.DONE
        )
        if is_over or self._unfinished:
            return self._unfinished
        return "asks again" if turn.state is TurnState.ASKING else "fails"

    @property
    def following(self) -> Question | None:
        """What the model would be asked next."""
        last = self._turns[-1:]
        return next((one.next_question() for one in last if one.state is TurnState.ASKING), None)

    def _rounds(self, request: Request, recorded: RecordedRun) -> Iterator[ReplyEvent]:
        from proxy.tool_rounds.run import Ask, Run, RunState
        from proxy.tool_rounds.terms import RunTerms

        limits = recorded.most_rounds, recorded.most_failed_rounds
        terms = RunTerms(frozenset(recorded.owned), self._policy.workflow, *limits)
        run = self._run = Run(request, terms)
        generations = self._exchange.generations
        for part, own in _parts(recorded.rounds, generations):
            if run.state is not RunState.READY:
                return
            step = run.next_step()
            assert isinstance(step, Ask)  # noqa: S101 - it was ready
            turn = self._begin(step.request, own, is_last=step.is_last)
            for events in self._batches(turn, own):
                is_end = bool(events) and isinstance(events[-1], ReplyFinished)
                yield from run.receive(events, defect=last_defect(turn.facts) if is_end else None)
            yield from self._results(run, part.outcomes)

    def _results(self, run: "Run", recorded: Sequence[RecordedOutcome]) -> Sequence[ReplyEvent]:
        """Give a run the recorded results of its calls; it stops if the calls are others."""
        from proxy.tool_rounds.run import Execute, RunState

        step = run.next_step() if run.state is RunState.CALLED else None
        if not isinstance(step, Execute):
            return ()
        if (outcomes := self._outcomes(step.calls, recorded)) is None:
            self._unfinished = "calls other tools"
            return ()
        return run.finish_round(outcomes)

    def _outcomes(
        self, calls: Sequence[ToolCall], recorded: Sequence[RecordedOutcome]
    ) -> "tuple[Outcome, ...] | None":
        """Return what became of calls then; None if they were others."""
        from proxy.tool_rounds.executor import Outcome, Status

        made = [(call.name, call.arguments) for call in calls]
        if made != [(one.name, one.arguments) for one in recorded]:
            return None
        number = 1 + max((one.round for one in self._ran), default=0)
        self._ran += [ToolRan("", one.name, one.status, number) for one in recorded]
        return tuple(
            Outcome(call, one.text, Status(one.status), counted=one.counted)
            for call, one in zip(calls, recorded, strict=True)
        )

    def _begin(self, request: Request, heard: Generations, *, is_last: bool = False) -> Turn:
        leave = iter(range(len(heard) - 1))

        def may_retry() -> bool:
            """Answer as it was recorded: this depended on everybody else's requests."""
            return not self._was_withheld or next(leave, None) is not None

        plan = plan_request(request, self._policy)
        turn = begin(plan, self._new_id, may_retry, NoCompaction(), is_last=is_last)
        self._turns.append(turn)
        return turn

    def _new_id(self) -> str:
        return f"call_{next(self._numbers)}"

    def _answers(self, turn: Turn, generations: Generations) -> Iterator[ReplyEvent]:
        for events in self._batches(turn, generations):
            yield from events

    def _batches(self, turn: Turn, generations: Generations) -> Iterator[Sequence[ReplyEvent]]:
        """Put each question of a turn to the recording, as long as it knows an answer."""
        for pieces in generations:
            *before, last = pieces or (["nothing"],)
            if last[0] not in ENDINGS or any(piece[0] in ENDINGS for piece in before):
                raise ValueError(f"a generation has to end with one of {', '.join(ENDINGS)}")
            question = turn.next_question()
            if question is None:
                return
            self.asked.append(question)
            for piece in before:
                yield turn.receive(event_of(piece))
            if last[0] != FAILED:
                yield turn.receive(event_of(last))
            elif events := turn.abandon():
                yield events
            else:
                return


def lost_generations(exchange: RecordedExchange) -> int:
    """Count the generations that no turn is made of: those of prompts that proved too long."""
    if exchange.run is None:
        return len(exchange.generations) - len(_select_generations(exchange.generations))
    parts = _parts(exchange.run.rounds, exchange.generations)
    return len(exchange.generations) - sum(len(own) for _, own in parts)


def _parts(
    rounds: Sequence[RecordedRound], generations: Generations
) -> Iterator[tuple[RecordedRound, Generations]]:
    first = 0
    for one in rounds:
        yield one, _select_generations(generations[first : first + one.generations])
        first += one.generations


def _select_generations(generations: Generations) -> Generations:
    """Return the generations of the turn that gave the answer, not one that proved too long."""
    first = generations[0] if generations else ()
    is_lost = first[-1:] == ([FAILED, "context_overflow"],)
    return generations[is_lost:]


def _quirks(recorded: RecordedModel, profiles: Sequence[Profile]) -> Quirks:
    known = {profile.name: profile for profile in (*profiles, GENERIC)}
    chosen = known.get(recorded.profile) if recorded.profile is not None else None
    evidence = Evidence(
        recorded.names, recorded.architecture, recorded.template, recorded.takes_tools
    )
    overrides = Overrides(chosen, recorded.convention, recorded.replay)
    return introduce("", evidence, profiles, overrides).quirks


def _policy(recorded: RecordedPolicy, quirks: Quirks) -> Policy:
    return Policy(
        quirks,
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

    def by_name(self) -> dict[str, str]:
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
        yield escape(f"{one.id}  {one.model}: {one.status}")
        for change in one.changes:
            yield f"    {change.what}: {_shorten(change.before)} -> {_shorten(change.now)}"
    count = sum(bool(one.changes) for one in replayed)
    yield f"{count} of {len(replayed)} changed"


def replay(exchange: RecordedExchange, profiles: Sequence[Profile]) -> Replayed:
    """Judge an exchange again and return what changed; raises ValueError if it makes no sense."""
    model = str(exchange.request.get("model", ""))
    if exchange.verdict.outcome is None:
        return Replayed(exchange.id, model, is_complete=False)
    before, now = _as_recorded(exchange).by_name(), _as_judged(exchange, profiles).by_name()
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
        _format_attempts(verdict.attempts[lost_generations(exchange) :]),
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
    judged.attempts = _format_attempts([(one.kind, one.defect) for one in tries(facts)])
    judged.repairs = repairs(facts)
    return judged


def _format_attempts(attempts: Sequence[tuple[str, str | None]]) -> str:
    return ", ".join(f"{reason} ({defect or 'accepted'})" for reason, defect in attempts)


def _shorten(value: str) -> str:
    short = value if len(value) <= _LONGEST_SHOWN else value[:_LONGEST_SHOWN] + "..."
    return escape(short) or "(nothing)"


class WrittenCall(msgspec.Struct):
    """A call that the model wrote, as the backend read it."""

    name: str
    arguments: str = ""


class Nudge(msgspec.Struct, frozen=True):
    """A message that Temper added, or the result of a tool that it ran."""

    role: str
    text: str


class Generation(msgspec.Struct, kw_only=True):
    """What the model wrote, and in `nudge` what it was told afterwards."""

    text: str = ""
    thoughts: str = ""
    calls: list[WrittenCall] = []
    ending: str = ""
    nudge: list[Nudge] = []


class BeforeAfter(msgspec.Struct, frozen=True, kw_only=True):
    """One exchange: all generations, the answer, and the request that was asked."""

    generations: list[Generation]
    text: str
    calls: list[WrittenCall]
    finish_reason: str | None
    request: JsonObject
    line: str


def before_after(line: bytes, profiles: Sequence[Profile]) -> BeforeAfter:
    exchange = RecordedExchange.model_validate_json(line)
    generations = [_generation(pieces) for pieces in exchange.generations]
    nudges = _nudges(exchange, profiles)
    for one, nudge in zip(reversed(generations[:-1]), reversed(nudges), strict=False):
        one.nudge = nudge
    answer = exchange.answer
    return BeforeAfter(
        generations=generations,
        text=answer.text,
        calls=[WrittenCall(call.name, call.arguments) for call in answer.calls],
        finish_reason=answer.finish_reason,
        request=exchange.request,
        line=line.decode().rstrip("\n"),
    )


def _generation(pieces: Sequence[Piece]) -> Generation:
    made = Generation(calls=[], nudge=[])
    for piece in pieces:
        match piece:
            case ["text", str(text)]:
                made.text += text
            case ["reasoning", str(text)]:
                made.thoughts += text
            case ["call", int(), _, str(name)]:
                made.calls.append(WrittenCall(name))
            case ["arguments", int(index), str(text)] if index < len(made.calls):
                made.calls[index].arguments += text
            case [str(ending), str(detail)]:
                made.ending = f"{ending}: {detail}"
            case _:
                pass
    return made


def _nudges(exchange: RecordedExchange, profiles: Sequence[Profile]) -> list[list[Nudge]]:
    """Return what the model was told after each generation but the last."""
    try:
        asked = [question.messages for question in questions_of(exchange, profiles)]
    except (InvalidRequest, ValueError):
        return []  # other profiles than then may make another turn of it
    asked = asked[: len(exchange.generations)]
    return [_list_added_messages(before, after) for before, after in pairwise(asked)]


def _list_added_messages(before: Sequence[Message], after: Sequence[Message]) -> list[Nudge]:
    """Return the messages behind those that were asked before, but for the reply itself."""
    shared = 0
    while shared < min(len(before), len(after)) and before[shared] == after[shared]:
        shared += 1
    added = (message for message in after[shared:] if message.role != "assistant")
    return [Nudge(message.role, message.text) for message in added]
