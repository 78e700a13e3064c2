"""Readers of one reply, for requests with guardrails, without them, or in observe mode.

For speed, deltas that arrived together are joined and read in one step. The shown text is then
split again where the backend had split it. This is possible because the result of a reader does not
depend on the boundaries of deltas, and because a reader shows each character of a text unchanged.
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

# At most this many characters of earlier deltas are shown together with the current deltas. They
# were held because they are white space, or an opening mark that turned out to be prose.
_MOST_HELD = 128

_text_of = attrgetter("text")


def join_deltas(
    events: Iterable[ReplyEvent], *, is_split_again: bool = True
) -> Iterator[tuple[ReplyEvent, Sequence[ReplyEvent]]]:
    """Join adjacent deltas of one kind; yield each event with the deltas that it was joined from.

    If `is_split_again` is False, argument deltas with quotes or escapes are joined as well.
    """
    for kind, group in groupby(events, type):
        is_cut = is_split_again and kind is ToolCallArgumentsDelta
        for run in _cut_at_escapes([*group]) if is_cut else ([*group],):
            joined = _join(run) if len(run) > 1 else None
            if joined is not None:
                yield joined, run
            else:
                yield from ((event, ()) for event in run)


def split_like(shown: list[ReplyEvent], deltas: Sequence[ReplyEvent]) -> list[ReplyEvent]:
    """Split the first shown delta at the boundaries of the original deltas.

    Example: shown "a bc", original deltas "a", " b" and "c" -> "a", " b", "c"
    """
    if not (deltas and shown and isinstance(first := shown[0], DELTAS)):
        return shown
    texts: list[str] = [*map(_text_of, deltas)]
    text, received = first.text, "".join(texts)
    if text != received:
        most = min(len(text), _MOST_HELD)
        # the number of characters at the start of `text` that earlier deltas brought
        earlier_length = next((n for n in range(most + 1) if received.startswith(text[n:])), None)
        if earlier_length is None:
            return shown
        ends = [earlier_length + end for end in accumulate(map(len, texts))]
        starts = (0, *ends[:-1])
        texts = [
            text[start:end] for start, end in zip(starts, ends, strict=True) if start < len(text)
        ]
    if isinstance(first, ToolCallArgumentsDelta):
        return [*map(ToolCallArgumentsDelta, repeat(first.index), texts), *shown[1:]]
    if isinstance(first, ReasoningDelta):
        return [*map(ReasoningDelta, texts), *shown[1:]]
    return [*map(TextDelta, texts), *shown[1:]]


def _cut_at_escapes(events: list[ReplyEvent]) -> Iterator[list[ReplyEvent]]:
    """Divide argument deltas into runs in which each delta with a quote or an escape is alone.

    Such a delta may be shown with another text. If it were joined with the deltas before and after
    it, the boundaries of the deltas could not be found in the shown text.
    """
    if _is_plain("".join(map(_text_of, events))):  # most deltas have no quote
        yield events
        return
    for is_plain, run in groupby(events, lambda event: _is_plain(_text_of(event))):
        if is_plain:
            yield [*run]
        else:
            yield from ([event] for event in run)


def _is_plain(text: str) -> bool:
    return '"' not in text and "\\" not in text


def _join(run: list[ReplyEvent]) -> Delta | None:
    """Join deltas of one kind; None if they have log probabilities or belong to several calls."""
    match run[0]:
        case TextDelta() if [*map(attrgetter("logprobs"), run)].count(None) == len(run):
            return TextDelta("".join(map(_text_of, run)))
        case ReasoningDelta():
            return ReasoningDelta("".join(map(_text_of, run)))
        case ToolCallArgumentsDelta(index) if {*map(attrgetter("index"), run)} == {index}:
            return ToolCallArgumentsDelta(index, "".join(map(_text_of, run)))
        case _:
            return None


# A reply with one of these defects is a call or a copy of a result, so it is not shown as prose.
_HELD = (
    *(Defect.UNKNOWN_SYNTAX, Defect.DOUBTFUL, Defect.ECHO, Defect.MISPLACED),
    *(Defect.EXECUTED, Defect.INVENTED),
)
_CALLS = (ToolCallStarted, ToolCallArgumentsDelta)  # the events of structured calls


@dataclass(eq=False)
class GuardedReader:
    """Reads a reply, shows the parts that the `gate` releases, and reviews it at its end.

    `insistence` is the number of replies of this turn that were rejected before.
    """

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
                if parts := reader.read(event):  # only the message of a `respond` call has parts
                    return self._show(parts)
                return self.gate.show_call(event) if reader.has_call(index) else []
            case TextDelta() | ReasoningDelta():
                return self._show(reader.read(event))
            case ToolCallStarted(index):
                event = self._ids.identify(event)
                shown = self._show(reader.read(event))
                # `reader.calls` has the calls found in the text before this call. Those calls wait
                # for the verdict, so this call has to wait as well.
                is_shown = index in reader.structured and not reader.calls
                return shown + self.gate.show_call(event) if is_shown else shown
            case _:
                return [event]

    def _show(self, parts: Sequence[ReplyPart]) -> list[ReplyEvent]:
        if len(parts) == 1:  # saves a list in the most frequent case
            return self.gate.show(parts[0])
        return [event for part in parts for event in self.gate.show(part)]

    def read_all(self, events: Sequence[ReplyEvent]) -> list[ReplyEvent]:
        """Take events that arrived together; equivalent to `read` for each of them."""
        shown: list[ReplyEvent] = []
        for event, deltas in join_deltas(events, is_split_again=self.shows_pieces):
            try:
                visible = self.read(event)
            except EnoughReadError:
                if shown:
                    break  # the next batch raises again
                raise
            shown += split_like(visible, deltas) if self.shows_pieces else visible
        return shown

    def finish(self, reason: str) -> tuple[list[ReplyEvent], Verdict]:
        """End the reply; return its last events to show, and the verdict."""
        last_parts, reply = self._reader.finish(reason, is_unseen=self.gate.is_unseen)
        shown = self._show(last_parts)
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

    def complete(self, answer: Accepted, *, is_only_reply: bool) -> list[ReplyEvent]:
        """Return the missing part of an answer; see `ReplyGate.complete`."""
        return self.gate.complete(answer, is_only_reply=is_only_reply)


class CallIds:
    """Gives each call a unique id: the backend's id, or a new id if that is missing or in use."""

    def __init__(self, new_id: NewId, used_ids: Iterable[str] = ()) -> None:
        self._new_id = new_id
        self._used_ids = {*used_ids}

    def identify(self, started: ToolCallStarted) -> ToolCallStarted:
        call_id = started.id
        if not call_id or call_id in self._used_ids:
            call_id = self._new_id()
        self._used_ids.add(call_id)
        return started if call_id == started.id else replace(started, id=call_id)


class PassthroughReader:
    """Shows all events as they arrive; if `streams_calls` is false, shows calls only at the end.

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
        for event, _ in join_deltas(shown, is_split_again=False):
            self._reply.add(event)
        return [event for event in shown if self._streams_calls or not isinstance(event, _CALLS)]

    def _split(
        self, events: Sequence[ReplyEvent], splitter: ReasoningSplitter
    ) -> Sequence[ReplyEvent]:
        split: list[ReplyEvent] = []
        for event in events:
            match event:
                case TextDelta(text, logprobs=None):
                    split += splitter.feed(text)
                case TextDelta(text):  # a text with log probabilities cannot be split
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
        last_events: list[ReplyEvent] = [*splitter.finish()]
        for event in last_events:
            self._reply.add(event)
        answer = self.answer(reason)
        is_ended = splitter.has_ended or bool(split_unopened(answer.text)[0])
        return last_events, replace(answer, facts=(EndedThoughts(),)) if is_ended else answer

    def answer(self, reason: str) -> Accepted:
        reply = self._reply.finish(reason)
        calls = tuple(
            ToolCall(call.id or "", call.name, str(call.arguments)) for call in reply.calls
        )
        return Accepted(reply.text, calls, reason)

    def complete(self, answer: Accepted, *, is_only_reply: bool) -> list[ReplyEvent]:
        if self._streams_calls:
            return []
        return [ToolCalled(index, call) for index, call in enumerate(answer.calls)]


class TextOnlyReader(PassthroughReader):
    """Shows a reply without its calls, for the `tool_choice` "none".

    Ollama ignores `tool_choice`, and may return calls (ollama/ollama#17921). A reply that contains
    only calls is rejected, just as an empty reply is.
    """

    def __init__(self, new_id: NewId, *, splitter: ReasoningSplitter | None) -> None:
        super().__init__(new_id, streams_calls=False, splitter=splitter)
        self._is_rejected = False

    def complete(self, answer: Accepted, *, is_only_reply: bool) -> list[ReplyEvent]:
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


class ResponseFormatReader(PassthroughReader):
    """Checks the response format of an answer to a request without tools.

    Temper checks the format because some engines do not enforce it: they have no grammars, or do
    not apply them to a model that reasons. A streamed answer that begins with `{` or `[` is shown
    as it arrives, so it cannot be retried.
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
        events, self._held = self._held, []
        return events

    def finish(self, reason: str) -> tuple[list[ReplyEvent], Verdict]:
        last_events, verdict = super().finish(reason)
        shown = [part for event in last_events for part in self._show(event)]
        if not isinstance(verdict, Accepted) or reason not in (STOP, CALLS):
            self._is_shown = True
            return [*shown, *self._held], verdict
        match check_reply(verdict.text, "".join(self._thoughts), self._schema):
            case ValidAnswer(text, facts):
                facts = (*verdict.facts, *facts)
                if self._is_shown:
                    return shown, replace(verdict, facts=facts)
                events = self._held if text == verdict.text else [TextDelta(text)]
                self._is_shown = True
                return [*shown, *events], replace(verdict, text=text, facts=facts)
            case InvalidAnswer(problems) if self._is_shown:
                facts = (*verdict.facts, Unchecked("the answer", "; ".join(problems)))
                return shown, replace(verdict, facts=facts)
            case InvalidAnswer(problems):
                nudge = correct_answer(verdict.text, problems)
                return shown, Rejected(Defect.INVALID_ANSWER, nudge, verdict, verdict.facts)

    def complete(self, answer: Accepted, *, is_only_reply: bool) -> list[ReplyEvent]:
        """Show a rejected answer, unless it was streamed."""
        return [] if self._is_shown or not answer.text else [TextDelta(answer.text)]


class ObservingReader(PassthroughReader):
    """Passes a reply on unchanged, and reports the verdict that the guardrails would have given.

    A bug in the guardrails is reported as well, and has no effect on the reply.
    """

    def __init__(self, offer: OfferedTools, new_id: NewId, *, streams_calls: bool = True) -> None:
        super().__init__(new_id, streams_calls=streams_calls)
        self._offer = offer
        self._new_id = new_id
        self._reader = ReplyReader(offer)
        self._bug: Exception | None = None

    def read_all(self, events: Sequence[ReplyEvent]) -> list[ReplyEvent]:
        try:
            if self._bug is None:
                for event, _ in join_deltas(events, is_split_again=False):
                    self._reader.read(event)
        except EnoughReadError:
            pass  # the guardrails would stop this reply here; observe mode reads on
        except Exception as bug:  # noqa: BLE001 - reported as a fact
            self._bug = bug
        return super().read_all(events)

    def finish(self, reason: str) -> tuple[list[ReplyEvent], Verdict]:
        """Accept the reply unchanged, with the facts of the guardrails' verdict."""
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
