"""Readers of one reply: guarded, observed, or passed through.

Deltas that arrived together are joined, read in one step, and then cut as the backend cut them.
This relies on the readers: their result does not depend on the chunking, and they change no
character.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, groupby, repeat
from operator import attrgetter
from typing import TypeAlias

from msgspec.structs import replace

from proxy.conversation.endings import CALLS, STOP
from proxy.conversation.json import JsonSchema
from proxy.conversation.replies import (
    DELTAS,
    Delta,
    ReasoningDelta,
    ReplyEvent,
    ReplyInProgress,
    TextDelta,
    ToolCallArgumentsDelta,
    ToolCalled,
    ToolCallStarted,
)
from proxy.conversation.tools import ToolCall
from proxy.facts import Dropped, EndedThoughts, Fact, RejectedReply, Unchecked
from proxy.guardrails.nudges import ask_for_words, correct_answer
from proxy.guardrails.offer import OfferedTools
from proxy.guardrails.reading import ReplyReader
from proxy.guardrails.reasoning import EnoughReadError, ReasoningSplitter, split_unopened
from proxy.guardrails.reply_text import ReplyPart
from proxy.guardrails.respond import ANSWER_TOOLS, only_text
from proxy.guardrails.review import NewId, review
from proxy.guardrails.schemas.arguments import InvalidAnswer, ValidAnswer, check_reply
from proxy.guardrails.verdict import Accepted, Defect, Rejected, Verdict
from proxy.inference.sent_answer import SentAnswer
from proxy.inference.text_gate import ReplyGate

# The most characters of earlier deltas that are shown together with these: an opening mark that
# turned out to be prose, and white space.
_MOST_HELD = 128

_text_of = attrgetter("text")


def join_deltas(
    events: Iterable[ReplyEvent], *, is_split_again: bool = True
) -> Iterator[tuple[ReplyEvent, Sequence[ReplyEvent]]]:
    """Yield the events with each run of deltas of one kind joined, and the original deltas.

    If nothing `is_split_again`, arguments with escapes are joined as well.
    """
    for kind, group in groupby(events, type):
        has_cuts = is_split_again and kind is ToolCallArgumentsDelta
        for row in _cut_at_escapes([*group]) if has_cuts else ([*group],):
            whole = _whole(row) if len(row) > 1 else None
            if whole is not None:
                yield whole, row
            else:
                yield from ((event, ()) for event in row)


def split_like(shown: list[ReplyEvent], deltas: Sequence[ReplyEvent]) -> list[ReplyEvent]:
    """Cut a shown delta at the boundaries of the original deltas."""
    if not (deltas and shown and isinstance(first := shown[0], DELTAS)):
        return shown
    texts: list[str] = [*map(_text_of, deltas)]
    whole, source = first.text, "".join(texts)
    if whole != source:
        most = min(len(whole), _MOST_HELD)
        held = next((n for n in range(most + 1) if source.startswith(whole[n:])), None)
        if held is None:
            return shown
        ends = [held + end for end in accumulate(map(len, texts))]
        starts = (0, *ends[:-1])
        texts = [
            whole[start:end] for start, end in zip(starts, ends, strict=True) if start < len(whole)
        ]
    if isinstance(first, ToolCallArgumentsDelta):
        return [*map(ToolCallArgumentsDelta, repeat(first.index), texts), *shown[1:]]
    if isinstance(first, ReasoningDelta):
        return [*map(ReasoningDelta, texts), *shown[1:]]
    return [*map(TextDelta, texts), *shown[1:]]


def _cut_at_escapes(events: list[ReplyEvent]) -> Iterator[list[ReplyEvent]]:
    """Yield runs of arguments; text with escapes cannot be cut where its source was cut."""
    if _is_plain("".join(map(_text_of, events))):  # nearly always
        yield events
        return
    for is_plain, row in groupby(events, lambda event: _is_plain(_text_of(event))):
        if is_plain:
            yield [*row]
        else:
            yield from ([event] for event in row)


def _is_plain(text: str) -> bool:
    return '"' not in text and "\\" not in text


def _whole(row: list[ReplyEvent]) -> Delta | None:
    """Join deltas of one kind; None if that would lose something."""
    match row[0]:
        case TextDelta() if [*map(attrgetter("logprobs"), row)].count(None) == len(row):
            return TextDelta("".join(map(_text_of, row)))
        case ReasoningDelta():
            return ReasoningDelta("".join(map(_text_of, row)))
        case ToolCallArgumentsDelta(index) if {*map(attrgetter("index"), row)} == {index}:
            return ToolCallArgumentsDelta(index, "".join(map(_text_of, row)))
        case _:
            return None


# After these defects the text is a call or a copy of a result, so it is not shown as prose.
_HELD = (
    *(Defect.UNKNOWN_SYNTAX, Defect.DOUBTFUL, Defect.ECHO, Defect.MISPLACED),
    *(Defect.EXECUTED, Defect.INVENTED),
)
_CALLS = (ToolCallStarted, ToolCallArgumentsDelta)


@dataclass(eq=False)
class GuardedReader:
    """Reads, releases and reviews a reply."""

    offer: OfferedTools
    gate: ReplyGate
    new_id: NewId
    sent: SentAnswer
    insistence: int = field(default=0, kw_only=True)
    shows_pieces: bool = field(default=True, kw_only=True)

    def __post_init__(self) -> None:
        self._ids = CallIds(self.new_id, self.sent.call_ids)
        self._reader = ReplyReader(self.offer, is_retry=self.insistence > 0)

    def read(self, event: ReplyEvent) -> list[ReplyEvent]:
        """Take an event of the backend; return the events to show."""
        reader = self._reader
        match event:
            case ToolCallArgumentsDelta(index):
                if parts := reader.read(event):  # of a message
                    return self._show(parts)
                return self.gate.show_call(event) if reader.has_call(index) else []
            case TextDelta() | ReasoningDelta():
                return self._show(reader.read(event))
            case ToolCallStarted(index):
                event = self._ids.identify(event)
                shown = self._show(reader.read(event))
                # Calls in the text come first and wait for the verdict, and so does this call.
                is_shown = index in reader.structured and not reader.calls
                return shown + self.gate.show_call(event) if is_shown else shown
            case _:
                return [event]

    def _show(self, parts: Sequence[ReplyPart]) -> list[ReplyEvent]:
        if len(parts) == 1:  # nearly always
            return self.gate.show(parts[0])
        return [event for part in parts for event in self.gate.show(part)]

    def read_all(self, events: Sequence[ReplyEvent]) -> list[ReplyEvent]:
        """Take events that arrived together; the effect is the same as one at a time."""
        shown: list[ReplyEvent] = []
        for whole, deltas in join_deltas(events, is_split_again=self.shows_pieces):
            try:
                visible = self.read(whole)
            except EnoughReadError:
                if shown:
                    break  # the next batch raises again
                raise
            shown += split_like(visible, deltas) if self.shows_pieces else visible
        return shown

    def finish(self, reason: str) -> tuple[list[ReplyEvent], Verdict]:
        """End the reply; return the events to show in any case, and the verdict."""
        rest, reply = self._reader.finish(reason, is_unseen=self.gate.is_unseen)
        shown = self._show(rest)
        verdict = review(
            reply,
            self.offer,
            self.new_id,
            insistence=self.insistence,
            sent_ids=[call.id for call in self.sent.calls],
        )
        if isinstance(verdict, Rejected) and verdict.defect not in _HELD:
            shown += self.gate.end()
        return shown, verdict

    def complete(self, answer: Accepted, *, is_own: bool) -> list[ReplyEvent]:
        """Return the missing part of an answer; `is_own`: the client has seen no other reply."""
        return self.gate.complete(answer, is_own=is_own)


class CallIds:
    """Gives each call of a reply a unique id: the backend's, unless that is `taken`."""

    def __init__(self, new_id: NewId, taken: Iterable[str] = ()) -> None:
        self._new_id = new_id
        self._taken = {*taken}

    def identify(self, started: ToolCallStarted) -> ToolCallStarted:
        call_id = started.id
        if not call_id or call_id in self._taken:
            call_id = self._new_id()
        self._taken.add(call_id)
        return started if call_id == started.id else replace(started, id=call_id)


class PassthroughReader:
    """Shows everything as it arrives; without `streams_calls` calls are shown whole, at the end.

    With a `splitter`, reasoning at the beginning of the text becomes reasoning deltas.
    """

    def __init__(
        self,
        new_id: NewId,
        *,
        streams_calls: bool = True,
        splitter: ReasoningSplitter | None = None,
    ) -> None:
        self._ids = CallIds(new_id)
        self._streams_calls = streams_calls
        self._reply = ReplyInProgress()
        self._splitter = splitter

    def read(self, event: ReplyEvent) -> list[ReplyEvent]:
        return self.read_all((event,))

    def read_all(self, events: Sequence[ReplyEvent]) -> list[ReplyEvent]:
        identify = self._ids.identify
        if self._splitter is not None:
            events = self._split(events, self._splitter)
        shown = [
            identify(event) if isinstance(event, ToolCallStarted) else event for event in events
        ]
        for whole, _ in join_deltas(shown, is_split_again=False):
            self._reply.add(whole)
        return [event for event in shown if self._streams_calls or not isinstance(event, _CALLS)]

    def _split(
        self, events: Sequence[ReplyEvent], splitter: ReasoningSplitter
    ) -> Sequence[ReplyEvent]:
        split: list[ReplyEvent] = []
        for event in events:
            match event:
                case TextDelta(text, logprobs=None):
                    split += splitter.feed(text)
                case TextDelta(text):  # with probabilities, so it cannot be cut
                    split += (*splitter.settle(), event)
                    splitter.record_answer(text)
                case ToolCallStarted():
                    split += (*splitter.settle(), event)
                case _:
                    split.append(event)
        return split

    def finish(self, reason: str) -> tuple[list[ReplyEvent], Verdict]:
        splitter = self._splitter
        if splitter is None:
            return [], self.answer(reason)
        rest: list[ReplyEvent] = [*splitter.finish()]
        for event in rest:
            self._reply.add(event)
        answer = self.answer(reason)
        is_ended = splitter.has_ended or bool(split_unopened(answer.text)[0])
        return rest, replace(answer, facts=(EndedThoughts(),)) if is_ended else answer

    def answer(self, reason: str) -> Accepted:
        reply = self._reply.finish(reason)
        calls = tuple(
            ToolCall(call.id or "", call.name, str(call.arguments)) for call in reply.calls
        )
        return Accepted(reply.text, calls, reason)

    def complete(self, answer: Accepted, *, is_own: bool) -> list[ReplyEvent]:
        if self._streams_calls:
            return []
        return [ToolCalled(index, call) for index, call in enumerate(answer.calls)]


class WordsReader(PassthroughReader):
    """Passes on a reply without its calls, because the client allows none.

    Ollama ignores `tool_choice: none` (ollama/ollama#17921). A reply of nothing but calls is
    rejected once, like an empty one.
    """

    def __init__(self, new_id: NewId, *, splitter: ReasoningSplitter | None) -> None:
        super().__init__(new_id, streams_calls=False, splitter=splitter)
        self._is_rejected = False

    def complete(self, answer: Accepted, *, is_own: bool) -> list[ReplyEvent]:
        return [TextDelta(answer.text)] if self._is_rejected and answer.text else []

    def finish(self, reason: str) -> tuple[list[ReplyEvent], Verdict]:
        shown, verdict = super().finish(reason)
        if not isinstance(verdict, Accepted) or not verdict.calls:
            return shown, verdict
        answers = [only_text(call.arguments) for call in verdict.calls if call.name in ANSWER_TOOLS]
        facts = (*verdict.facts, *(Dropped("forbidden_call") for _ in verdict.calls))
        ending = STOP if reason == CALLS else reason
        answer = replace(verdict, calls=(), reason=ending, facts=facts)
        if not answer.text and (text := "\n\n".join(filter(None, answers))):
            return [*shown, TextDelta(text)], replace(answer, text=text)
        if answer.text.strip():
            return shown, answer
        self._is_rejected = True
        return shown, Rejected(Defect.EMPTY, ask_for_words(), answer, facts)


class AnswerReader(PassthroughReader):
    """Enforces the form of an answer where no tools are offered.

    Engines enforce it, but not in reasoning, and not at all without grammars. A streamed answer
    that begins like an object or a list is shown as it arrives; it is never retried.
    """

    def __init__(
        self,
        schema: JsonSchema,
        new_id: NewId,
        *,
        streams: bool,
        splitter: ReasoningSplitter | None,
    ) -> None:
        super().__init__(new_id, streams_calls=False, splitter=splitter)
        self._schema = schema
        self._streams = streams
        self._held: list[ReplyEvent] = []
        self._thoughts: list[str] = []
        self._is_shown = False

    def read_all(self, events: Sequence[ReplyEvent]) -> list[ReplyEvent]:
        return [part for event in super().read_all(events) for part in self._show(event)]

    def _show(self, event: ReplyEvent) -> list[ReplyEvent]:
        if isinstance(event, ReasoningDelta):
            self._thoughts.append(event.text)
        if self._is_shown or not isinstance(event, TextDelta):
            return [event]
        self._held.append(event)
        beginning = "".join(
            part.text for part in self._held if isinstance(part, TextDelta)
        ).lstrip()
        if not self._streams or beginning[:1] not in ("{", "["):
            return []
        self._is_shown = True
        held, self._held = self._held, []
        return held

    def finish(self, reason: str) -> tuple[list[ReplyEvent], Verdict]:
        rest, verdict = super().finish(reason)
        shown = [part for event in rest for part in self._show(event)]
        if not isinstance(verdict, Accepted) or reason not in (STOP, CALLS):
            self._is_shown = True
            return [*shown, *self._held], verdict
        match check_reply(verdict.text, "".join(self._thoughts), self._schema):
            case ValidAnswer(text, facts):
                facts = (*verdict.facts, *facts)
                if self._is_shown:
                    return shown, replace(verdict, facts=facts)
                held = self._held if text == verdict.text else [TextDelta(text)]
                self._is_shown = True
                return [*shown, *held], replace(verdict, text=text, facts=facts)
            case InvalidAnswer(problems) if self._is_shown:
                facts = (*verdict.facts, Unchecked("the answer", "; ".join(problems)))
                return shown, replace(verdict, facts=facts)
            case InvalidAnswer(problems):
                nudge = correct_answer(verdict.text, problems)
                return shown, Rejected(Defect.INVALID_ANSWER, nudge, verdict, verdict.facts)

    def complete(self, answer: Accepted, *, is_own: bool) -> list[ReplyEvent]:
        """Show an answer of which nothing was shown, because it was rejected."""
        return [] if self._is_shown or not answer.text else [TextDelta(answer.text)]


class ObservingReader(PassthroughReader):
    """Passes everything on, and records the verdict that it would have had, or a bug."""

    def __init__(self, offer: OfferedTools, new_id: NewId, *, streams_calls: bool = True) -> None:
        super().__init__(new_id, streams_calls=streams_calls)
        self._offer = offer
        self._new_id = new_id
        self._reader = ReplyReader(offer)
        self._bug: Exception | None = None

    def read_all(self, events: Sequence[ReplyEvent]) -> list[ReplyEvent]:
        try:
            if self._bug is None:
                for whole, _ in join_deltas(events, is_split_again=False):
                    self._reader.read(whole)
        except EnoughReadError:
            pass  # observing changes nothing, so the reply goes on
        except Exception as bug:  # noqa: BLE001 - reported as a fact
            self._bug = bug
        return super().read_all(events)

    def finish(self, reason: str) -> tuple[list[ReplyEvent], Verdict]:
        """Accept the reply as it is, with the facts of the verdict it would have had."""
        facts: tuple[Fact, ...] = ()
        try:
            if self._bug is None:
                facts = self._judge(reason)
        except Exception as bug:  # noqa: BLE001 - reported as a fact
            self._bug = bug
        if self._bug is not None:
            facts = (Unchecked("the reply", f"{type(self._bug).__name__}: {self._bug}"),)
        return [], replace(self.answer(reason), facts=facts)

    def _judge(self, reason: str) -> tuple[Fact, ...]:
        _, reply = self._reader.finish(reason)
        verdict = review(reply, self._offer, self._new_id)
        if isinstance(verdict, Rejected):
            return (*verdict.facts, RejectedReply(verdict.defect.value))
        return verdict.facts


TurnReader: TypeAlias = GuardedReader | PassthroughReader
