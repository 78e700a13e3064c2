"""Replays recorded exchanges offline, with today's guardrails and profiles.

No model is called and no tool is run: generations and tool results come from the recording.
`replay` compares the verdict and the answer with the recorded verdict and answer. `before_after`
shows each generation and the messages that Temper added after it. Nudges are not recorded, so the
guardrails produce them again.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, fields, replace
from itertools import count, pairwise, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import msgspec
from msgspec import structs

from proxy.conversation.json import JsonObject
from proxy.conversation.messages import Message
from proxy.conversation.replies import ReplyEvent, ReplyFinished, ReplyInProgress
from proxy.conversation.requests import Request, UpstreamRequest
from proxy.conversation.workflows import NO_RULES
from proxy.dialects.openai_chat.decode import decode_request
from proxy.errors import GuardrailsExhausted, InvalidConfiguration, InvalidRequest
from proxy.facts import (
    Asked,
    Fact,
    RejectedReply,
    Resent,
    ToolRan,
    judged_attempts,
    last_defect,
    outcome,
    repairs,
)
from proxy.guardrails.model_quirks import Quirks
from proxy.guardrails.offer import Part
from proxy.guardrails.reasoning import EnoughReadError
from proxy.inference.driver import end_early
from proxy.inference.plan import Policy
from proxy.inference.preparation import begin, plan_request
from proxy.inference.turn import Turn, TurnState
from proxy.observability import recording
from proxy.observability.exchange_recorder import ENDINGS, FAILED, answer_of, event_of
from proxy.observability.recording import Piece, RecordedExchange, read_recording
from proxy.observability.sentences import cut, escape
from proxy.profiles.files import load_profiles
from proxy.profiles.known_model import Overrides, identify_model
from proxy.profiles.profile import GENERIC, Profile
from proxy.profiles.recognition import Evidence

if TYPE_CHECKING:  # imported only for recordings that have tool rounds
    from proxy.tools.run import Run

Generations: TypeAlias = tuple[tuple[Piece, ...], ...]


class ReplayedTurns:
    """Runs the turns of one exchange with today's guardrails.

    The list `sent` collects the upstream requests that Temper would send today.

    `without` disables parts of the guardrails, which shows their effect.
    """

    def __init__(
        self,
        exchange: RecordedExchange,
        profiles: Sequence[Profile],
        without: frozenset[Part] = frozenset(),
    ) -> None:
        self.sent: list[UpstreamRequest] = []
        self._exchange = exchange
        policy = _policy(exchange.policy, _quirks(exchange.model, profiles))
        self._policy = structs.replace(policy, without=without)
        # Whether the retry budget withheld a retry. The budget depends on other requests, so in
        # this case the replay allows as many retries as were recorded.
        self._was_withheld = "withheld" in exchange.verdict.repairs
        self._turns: list[Turn] = []
        self._run: Run | None = None
        self._tool_facts: list[ToolRan] = []
        self._call_numbers = count()
        self._unfinished = ""

    def events(self) -> Iterator[ReplyEvent]:
        """Yield the events that the client would receive today.

        Ends when the turn is over or no recorded generation is left. Raises
        `InvalidRequest`, and ValueError if the exchange is inconsistent.
        """
        request = decode_request(msgspec.json.encode(self._exchange.request))
        failed = self._exchange.failed
        # the chat dialect has no field for the failure of a tool, so it is recorded separately
        messages = (
            structs.replace(message, failed=failed.get(index, message.failed))
            for index, message in enumerate(request.messages)
        )
        request = structs.replace(request, messages=tuple(messages) if failed else request.messages)
        run = self._exchange.run
        try:
            if run is None:
                ((_, generations),) = _parts(self._exchange)
                for events in self._batches(self._begin(request, generations), generations):
                    yield from events
            else:
                yield from self._rounds(request, run)
        except GuardrailsExhausted as failure:
            if self._run is not None:
                self._run.fail(failure.defect)

    @property
    def facts(self) -> tuple[Fact, ...]:
        facts = [fact for turn in self._turns for fact in turn.facts]
        return (
            *_resent(self._exchange),
            *facts,
            *(self._run.facts if self._run is not None else ()),
            *self._tool_facts,
        )

    @property
    def unfinished(self) -> str:
        """The outcome of the last turn if it did not end, else ""."""
        state, run = self._turns[-1].state if self._turns else TurnState.ASKING, self._run
        is_over = run.stop is not None if run is not None else state is TurnState.DONE
        if is_over or self._unfinished:
            return self._unfinished
        return "asks again" if state is TurnState.ASKING else "fails"

    @property
    def following(self) -> UpstreamRequest | None:
        """The upstream request that would be sent next; None if the turn is over."""
        if self._turns and self._turns[-1].state is TurnState.ASKING:
            return self._turns[-1].next_request()
        return None

    def _rounds(self, request: Request, recorded: recording.RecordedRun) -> Iterator[ReplyEvent]:
        from proxy.tools.run import Ask, Run, RunConfig, RunState

        limits = recorded.most_rounds, recorded.most_failed_rounds
        config = RunConfig(frozenset(recorded.owned), self._policy.workflow, *limits)
        run = self._run = Run(request, config)
        for outcomes, generations in _parts(self._exchange):
            if run.state is not RunState.READY:
                return
            step = run.next_step()
            assert isinstance(step, Ask)  # noqa: S101 - a ready run has no calls to execute
            turn = self._begin(step.request, generations, is_last=step.is_last)
            for events in self._batches(turn, generations):
                is_end = bool(events) and isinstance(events[-1], ReplyFinished)
                yield from run.receive(events, defect=last_defect(turn.facts) if is_end else None)
            yield from self._results(run, outcomes)

    def _results(
        self, run: "Run", recorded: Sequence[recording.RecordedOutcome]
    ) -> Sequence[ReplyEvent]:
        """Pass the recorded results to a run.

        If today's calls of the run differ from the recorded calls, the replay ends.
        """
        from proxy.tools.executor import Outcome, Status
        from proxy.tools.run import Execute, RunState

        step = run.next_step() if run.state is RunState.CALLED else None
        if not isinstance(step, Execute):
            return ()
        # a recorded result is valid only for the recorded call
        calls = [(call.name, call.arguments) for call in step.calls]
        if calls != [(outcome.name, outcome.arguments) for outcome in recorded]:
            self._unfinished = "calls other tools"
            return ()
        number = 1 + max((fact.round for fact in self._tool_facts), default=0)
        self._tool_facts += [
            ToolRan("", outcome.name, outcome.status, number) for outcome in recorded
        ]
        return run.finish_round(
            tuple(
                Outcome(call, outcome.text, Status(outcome.status), counted=outcome.counted)
                for call, outcome in zip(step.calls, recorded, strict=True)
            )
        )

    def _begin(self, request: Request, generations: Generations, *, is_last: bool = False) -> Turn:
        recorded_retries = iter(range(len(generations) - 1))

        def may_retry() -> bool:
            return not self._was_withheld or next(recorded_retries, None) is not None

        def new_id() -> str:
            return f"call_{next(self._call_numbers)}"

        plan = plan_request(request, self._policy)
        turn = begin(plan, new_id, may_retry, is_last=is_last)
        self._turns.append(turn)
        return turn

    def _batches(self, turn: Turn, generations: Generations) -> Iterator[Sequence[ReplyEvent]]:
        """Feed the recorded generations to a turn as long as it has an upstream request to send."""
        for pieces in generations:
            *content, last = pieces or (["nothing"],)
            if last[0] not in ENDINGS or any(piece[0] in ENDINGS for piece in content):
                raise ValueError(f"a generation has to end with one of {', '.join(ENDINGS)}")
            upstream_request = turn.next_request()
            if upstream_request is None:
                return
            self.sent.append(upstream_request)
            is_failed = last[0] == FAILED
            yield from _feed(turn, content if is_failed else pieces)
            if is_failed:
                if not (events := turn.abandon()):
                    return
                yield events


def _feed(turn: Turn, pieces: Sequence[Piece]) -> Iterator[Sequence[ReplyEvent]]:
    for piece in pieces:
        try:
            yield turn.receive(event_of(piece))
        except EnoughReadError:
            events: list[ReplyEvent] = []
            end_early(turn, events)
            yield events
            return


def lost_generations(exchange: RecordedExchange) -> int:
    """Count the generations that are not replayed: the prompt was too long or the server failed."""
    return len(exchange.generations) - sum(len(part) for _, part in _parts(exchange))


def _resent(exchange: RecordedExchange) -> tuple[Fact, ...]:
    """Return the facts of the attempts on the first server; () if the request was not resent."""
    if "resent" not in exchange.verdict.repairs:
        return ()
    facts: list[Fact] = []
    for kind, defect in exchange.verdict.attempts[: lost_generations(exchange)]:
        facts.append(Asked(kind))
        if defect is not None:
            facts.append(RejectedReply(defect))
    return (*facts, Resent())


def _parts(
    exchange: RecordedExchange,
) -> Iterator[tuple[Sequence[recording.RecordedOutcome], Generations]]:
    """Yield the call outcomes and the generations of each turn.

    The generations that `lost_generations` counts are dropped.
    """
    run, remaining = exchange.run, exchange.generations
    rounds = (
        [(len(remaining), ())]
        if run is None
        else [(tool_round.generations, tool_round.outcomes) for tool_round in run.rounds]
    )
    for number, outcomes in rounds:
        part, remaining = remaining[:number], remaining[number:]
        # after an overflow the request was compacted and a new turn began
        lost = int(bool(part) and part[0][-1:] == ([FAILED, "context_overflow"],))
        if "resent" in exchange.verdict.repairs:  # the request was resent to another server
            endings = [generation[-1:] for generation in part]
            lost = endings.index(([FAILED, "unavailable"],)) + 1
        yield outcomes, part[lost:]


def _quirks(recorded: recording.RecordedModel, profiles: Sequence[Profile]) -> Quirks:
    candidates = (*profiles, GENERIC)
    chosen = next((profile for profile in candidates if profile.name == recorded.profile), None)
    known = Evidence(**{field.name: getattr(recorded, field.name) for field in fields(Evidence)})
    overrides = Overrides(chosen, recorded.convention, recorded.replay)
    quirks = identify_model("", known, profiles, overrides).quirks
    return replace(quirks, opens_thoughts=recorded.opens_thoughts)


def _policy(recorded: recording.RecordedPolicy, quirks: Quirks) -> Policy:
    return Policy(quirks, **structs.asdict(recorded) | {"workflow": recorded.workflow or NO_RULES})


@dataclass(frozen=True, slots=True)
class Change:
    """A difference; `what` names it, e.g. `outcome` or `calls.0.arguments`."""

    what: str
    before: str
    now: str


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """The differences of one exchange; `is_complete` is False if it never ended."""

    id: str
    model: str
    changes: tuple[Change, ...] = ()
    is_complete: bool = True

    @property
    def status(self) -> str:
        if not self.is_complete:
            return "incomplete"
        return "changed" if self.changes else "same"


def replay_file(path: Path, folder: Path | None) -> list[ReplayResult]:
    """Replay all exchanges of a file with the built-in profiles and the profiles of a folder.

    Raises `InvalidConfiguration` if the file is not a recording or an exchange is inconsistent.
    """
    profiles = load_profiles(folder)
    try:
        with closing(read_recording(path)) as exchanges:
            return [replay(exchange, profiles) for exchange in exchanges]
    except (ValueError, LookupError) as error:
        raise InvalidConfiguration(str(path), f"has an inconsistent exchange: {error}") from error


def document(replayed: Sequence[ReplayResult]) -> JsonObject:
    return {
        "changed": sum(bool(result.changes) for result in replayed),
        "exchanges": [
            {
                "id": result.id,
                "model": result.model,
                "status": result.status,
                "changes": [asdict(change) for change in result.changes],
            }
            for result in replayed
        ],
    }


def summary(replayed: Sequence[ReplayResult]) -> Iterator[str]:
    """Yield the results as lines for people; foreign text is escaped for a terminal."""
    for result in replayed:
        yield escape(f"{result.id}  {result.model}: {result.status}")
        for change in result.changes:
            before, now = (cut(value) or "(nothing)" for value in (change.before, change.now))
            yield f"    {change.what}: {before} -> {now}"
    count = sum(bool(result.changes) for result in replayed)
    yield f"{count} of {len(replayed)} changed"


def replay(
    exchange: RecordedExchange,
    profiles: Sequence[Profile],
    without: frozenset[Part] = frozenset(),
) -> ReplayResult:
    """Replay an exchange, and compare verdict and answer with the recording.

    Raises ValueError if the exchange is inconsistent.

    `without` disables parts of the guardrails, which shows their effect.
    """
    model = str(exchange.request.get("model", ""))
    if exchange.verdict.outcome is None:
        return ReplayResult(exchange.id, model, is_complete=False)
    # the recorded verdict also lists the attempts of lost generations, which are not replayed
    lost = 0 if _resent(exchange) else lost_generations(exchange)
    attempts = exchange.verdict.attempts[lost:]
    verdict = structs.replace(exchange.verdict, attempts=attempts)
    judged, answer = _judge(exchange, profiles, without)
    before, now = _by_name(verdict, exchange.answer), _by_name(judged, answer)
    kinds = [kind for kind, _ in attempts]
    # the reply of the fallback model is not recorded, so only earlier attempts are compared
    if "fallback" in kinds:
        count = kinds.index("fallback")
        before, now = (
            {"attempts": _list(attempts[:count])},
            {"attempts": _list(judged.attempts[:count])},
        )
    changes = tuple(
        Change(name, before.get(name, ""), now.get(name, ""))
        for name in dict.fromkeys((*before, *now))
        if before.get(name, "") != now.get(name, "")
    )
    return ReplayResult(exchange.id, model, changes)


def upstream_requests(
    exchange: RecordedExchange, profiles: Sequence[Profile]
) -> list[UpstreamRequest]:
    """Return the upstream request of each generation, in order.

    If the turn is not over after the last generation, its next request is the last element.

    Raises `InvalidRequest`, and ValueError if the exchange is inconsistent.
    """
    turns = ReplayedTurns(exchange, profiles)
    for _ in turns.events():
        pass
    following = turns.following
    return [*turns.sent, following] if following is not None else turns.sent


def _judge(
    exchange: RecordedExchange, profiles: Sequence[Profile], without: frozenset[Part]
) -> tuple[recording.RecordedVerdict, recording.RecordedAnswer]:
    answer, reason, turns = ReplyInProgress(), None, ReplayedTurns(exchange, profiles, without)
    try:
        for event in turns.events():
            answer.add(event)
            if isinstance(event, ReplyFinished):
                reason = event.reason
    except InvalidRequest as error:
        refused = recording.RecordedVerdict(outcome=f"refused: {error}", attempts=(), repairs="")
        return refused, recording.RecordedAnswer(finish_reason=reason)
    facts = turns.facts
    verdict = recording.RecordedVerdict(
        outcome=turns.unfinished or outcome(facts).value,
        attempts=tuple((attempt.kind, attempt.defect) for attempt in judged_attempts(facts)),
        repairs=repairs(facts),
    )
    return verdict, answer_of(answer, reason)


def _by_name(
    verdict: recording.RecordedVerdict, answer: recording.RecordedAnswer
) -> dict[str, str]:
    values = {
        "outcome": verdict.outcome or "",
        "attempts": _list(verdict.attempts),
        "repairs": verdict.repairs,
        "text": answer.text,
        "finish_reason": answer.finish_reason or "",
    }
    for index, call in enumerate(answer.calls):
        values |= {f"calls.{index}.name": call.name, f"calls.{index}.arguments": call.arguments}
    return values


def _list(attempts: Sequence[tuple[str, str | None]]) -> str:
    return ", ".join(f"{kind} ({defect or 'accepted'})" for kind, defect in attempts)


class Nudge(msgspec.Struct, frozen=True):
    """A message that Temper added, or the result of a tool that it ran."""

    role: str
    text: str


class Generation(msgspec.Struct, kw_only=True):
    """One reply of the model; `nudge` are the messages that Temper added after it."""

    text: str
    thoughts: str
    calls: tuple[recording.RecordedCall, ...]
    ending: str
    nudge: list[Nudge] = []


class BeforeAfter(msgspec.Struct, frozen=True, kw_only=True):
    """One exchange: all generations, the answer, and the client's request.

    `line` is the exchange as recorded, in JSON.
    """

    generations: list[Generation]
    text: str
    calls: tuple[recording.RecordedCall, ...]
    finish_reason: str | None
    request: Mapping[str, object]
    line: str


def before_after(line: bytes, profiles: Sequence[Profile]) -> BeforeAfter:
    exchange = msgspec.json.decode(line, type=RecordedExchange)
    generations = [_generation(pieces) for pieces in exchange.generations]
    nudges = _nudges(exchange, profiles)
    # The nudges belong to the latest generations: earlier generations may have been lost to a
    # context overflow, and have no nudge.
    for generation, nudge in zip(reversed(generations[:-1]), reversed(nudges), strict=False):
        generation.nudge = nudge
    answer = exchange.answer
    return BeforeAfter(
        generations=generations,
        text=answer.text,
        calls=answer.calls,
        finish_reason=answer.finish_reason,
        request=exchange.request,
        line=line.decode().rstrip("\n"),
    )


def _generation(pieces: Sequence[Piece]) -> Generation:
    reply, ending = ReplyInProgress(), ""
    for piece in pieces:
        if piece[0] in ENDINGS:
            ending = f"{piece[0]}: {piece[1]}"
        else:
            reply.add(event_of(piece))
    answer, thoughts = answer_of(reply, None), reply.finish("").reasoning
    return Generation(text=answer.text, thoughts=thoughts, calls=answer.calls, ending=ending)


def _nudges(exchange: RecordedExchange, profiles: Sequence[Profile]) -> list[list[Nudge]]:
    """Return the messages that Temper added after each generation except the last."""
    try:
        prompts = [request.messages for request in upstream_requests(exchange, profiles)]
    except (InvalidRequest, ValueError):
        return []  # the profiles may have changed since the recording
    prompts = prompts[: len(exchange.generations)]
    return [_list_added_messages(before, after) for before, after in pairwise(prompts)]


def _list_added_messages(before: Sequence[Message], after: Sequence[Message]) -> list[Nudge]:
    """Return the messages that `after` has in addition to `before`, without the model's reply."""
    pairs = zip(before, after, strict=False)
    shared = len([*takewhile(lambda pair: pair[0] == pair[1], pairs)])
    added = (message for message in after[shared:] if message.role != "assistant")
    return [Nudge(message.role, message.text) for message in added]
