"""Reads one reply while it arrives: reasoning, prose, the respond message and tool calls.

`ReplyReader` takes the events of a backend and returns what the model said. Text passes
`reasoning` and then the scanner of `rescue`. For each call that the scanner finds, the reader
collects the facts (`Standing`), and `rescue.provenance` decides whether the model meant it. Calls
that the backend recognized itself are not judged here. A call inside reasoning counts only if it
ends the reasoning and neither an answer nor another call follows.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, partial
from itertools import chain, pairwise
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from proxy.conversation.endings import STOP, is_cut
from proxy.conversation.json import JsonValue
from proxy.conversation.replies import (
    ReasoningDelta,
    ReplyEvent,
    TextDelta,
    ToolCallArgumentsDelta,
    ToolCallStarted,
)
from proxy.conversation.tools import Tool, ToolUse, WrittenCall
from proxy.facts import Dropped, EndedThoughts, Fact, Refused, Repaired, Rescued
from proxy.guardrails import names
from proxy.guardrails.announcements.recognition import (
    announces,
    asks_user,
    is_question,
    shows_last,
)
from proxy.guardrails.executed_calls import has_run
from proxy.guardrails.grounding import Progress, judge_progress
from proxy.guardrails.labels import FinalAnswer, InventedResult, Labelled, LabelSplitter
from proxy.guardrails.offer import OfferedTools, TextPolicy
from proxy.guardrails.reasoning import (
    AddressedText,
    EndedSplitter,
    ReasoningSplitter,
    Spoken,
    split_unopened,
)
from proxy.guardrails.repetition import list_shown_calls
from proxy.guardrails.rescue import findings, swallowed, unnamed
from proxy.guardrails.rescue.copies import EarlierTexts
from proxy.guardrails.rescue.findings import Finding, Prose
from proxy.guardrails.rescue.marks import (
    begins_plain_call,
    envelope_starts,
    holds_block,
    holds_call,
    holds_mark,
)
from proxy.guardrails.rescue.markup import begins_with_mark
from proxy.guardrails.rescue.provenance import (
    Around,
    Content,
    Format,
    Origin,
    Standing,
    Treatment,
    Words,
    decide,
)
from proxy.guardrails.rescue.rows import FENCE
from proxy.guardrails.rescue.scanner import Scanner, find_calls
from proxy.guardrails.rescue.stray import StrayMarks, without_lone_marks
from proxy.guardrails.rescue.syntax import MOST_CALLS, MOST_SAME, Reason, Syntax
from proxy.guardrails.rescue.syntaxes.envelope import calls_in
from proxy.guardrails.rescue.syntaxes.tool_names import syntaxes_for
from proxy.guardrails.rescue.values.reader import read_values
from proxy.guardrails.respond import ANSWER_TOOLS, MessageDecoder, extract_message
from proxy.guardrails.schemas.arguments import ValidArguments, check
from proxy.guardrails.transcript import parse_arguments
from proxy.guardrails.unparsed_calls.recognition import begins_call, is_asked_about
from proxy.guardrails.unparsed_calls.words import is_placeholder

_LINE = "\n"
_PARAGRAPH = "\n\n"
_MOST_BEHIND = 2_000  # this much of the text after a call is examined
_ACCOUNT_WORDS = 4  # fewer are no report of anything
_CODE = re.compile(r"\s*(?:```\w*\s*)?\[?\s*[\w.\\]+\(")
_PYTHON_FENCE = re.compile(r"\s*```(?:py(?:thon)?)?\s*\n(?!\s*[\[{<])")
_PYTHON = re.compile(r"\bpython", re.IGNORECASE)
_FENCE_AT_END = re.compile(r"```\w*\Z")
_INLINE_FENCE = re.compile(r"(?<=\S) *```")
_REPEATED = Dropped("repeated_call")
_TOO_MANY = Dropped("too_many_calls")
_INVENTED_RESULT = Dropped("invented_result")
_NOT_A_CALL = findings.RefusedText(Reason.NOT_A_CALL)
_STOPPED = (Reason.BROKEN, Reason.NOT_CLOSED)
_BOTCHED = (*_STOPPED, Reason.NESTED, Reason.OUT_OF_ORDER)
_ARGUMENTS = (findings.ArgumentsStarted, findings.ArgumentsText, findings.Gap)
_UNREAD = (*_BOTCHED, Reason.CUT_OFF)


class RespondText(msgspec.Struct, frozen=True):
    """The model answered through the synthetic tool."""

    text: str


class BrokenCall(msgspec.Struct, frozen=True):
    """The model tried to make a call and failed; it is shown only if all else fails."""

    text: str


Heard: TypeAlias = ReasoningDelta | Prose | RespondText | BrokenCall


class AmbiguousCall(msgspec.Struct, frozen=True):
    """Calls that may not have been meant, as they appear in the text.

    If it `is_denied`, the user never named the values of the call: it is refused in any form.
    """

    source: str
    calls: tuple[WrittenCall, ...]
    is_denied: bool = False

    @property
    def is_code(self) -> bool:
        """Whether it reads as a line of Python, and not as markup."""
        return _CODE.match(self.source) is not None


class ReadReply(msgspec.Struct, frozen=True):
    """A finished reply.

    `text` is everything said and responded, in order; `calls` are unchecked calls of the client's
    tools. `is_cut_off` says that the model was stopped within a call, `is_botched` that `text`
    contains an unreadable call; `markup` is its end from such a call on. The text contains those
    `ambiguous`, too, but not `result_texts`, the contents of result blocks, which hold `misplaced`
    calls.
    """

    text: str = ""
    calls: tuple[WrittenCall, ...] = ()
    reason: str = STOP
    has_responded: bool = False
    is_cut_off: bool = False
    is_botched: bool = False
    facts: tuple[Fact, ...] = ()
    ambiguous: tuple[AmbiguousCall, ...] = ()
    markup: str = ""
    result_texts: tuple[str, ...] = ()
    misplaced: tuple[WrittenCall, ...] = ()
    thoughts: str = ""

    @property
    def words(self) -> str:
        """The text without what nobody can take for words or code."""
        text = self.text.removesuffix(self.markup)
        for one in reversed(self.ambiguous):
            if not one.is_code:  # the last place: what was quoted before may have been shown
                before, _, behind = text.rpartition(one.source)
                text = before + behind
        return text


class _StructuredCall(msgspec.Struct):
    """A call that the backend recognised itself, while its arguments arrive."""

    started: ToolCallStarted
    message: MessageDecoder | None
    position: int = 0  # number of text calls before it
    arguments: list[str] = msgspec.field(default_factory=list)


class ReplyReader:
    """Takes the events of one reply; returns at once what was heard."""

    _copies = 0  # of a call, in the prose after it
    _misplaced: tuple[WrittenCall, ...] = ()

    def __init__(self, offer: OfferedTools, *, is_retry: bool = False) -> None:
        self._offer = offer
        self._is_retry = is_retry
        self._splitter = ReasoningSplitter(
            offer.opens_thoughts, offer.quotable + offer.instructions
        )
        self._labels = LabelSplitter() if offer.has_labels else None
        self._scanner: Scanner | None = None  # until there is text
        self.structured: dict[int, _StructuredCall] = {}  # by index; the bound drops others
        self.calls: list[WrittenCall] = []
        self._facts: list[Fact] = []
        self._stray = StrayMarks(partial(_is_given, offer.quotable))
        self._late: list[Finding] = []  # from the first call on: the rest decides about it
        self._doubted: list[AmbiguousCall] = []
        self._is_recited = False
        self._result_texts: list[str] = []
        self._thought_calls: list[WrittenCall] = []
        self._thought_facts: list[Rescued] = []
        self._has_answered = False
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._message: MessageDecoder | None = None
        self._ends_in_message = False
        self._is_behind_call = False
        self._is_behind_text = False  # a call that is no call
        self._has_responded = False
        self._is_cut_off = False
        self._refusal: Reason | None = None
        self._is_broken = False
        self._markup_at: int | None = None  # the pieces of text before something that is no call
        self._goes_on = False
        self._ends_thoughts = False
        self._has_ended = False

    @cached_property
    def _names(self) -> tuple[str, ...]:
        return (*self._offer.callable_names, *self._offer.aliases, *ANSWER_TOOLS)

    @cached_property
    def _named(self) -> tuple[Syntax, ...]:
        is_plain = self._offer.answer_schema is not None or not self._offer.rescues
        return () if is_plain else syntaxes_for(self._offer.everything)

    def _scan(self, text: str) -> list[Finding]:
        if self._scanner is None:
            self._scanner = Scanner(
                self._offer.readable_syntaxes,
                self._names,
                self._named,
                may_cut=self._may_cut,
                may_hide=self._may_hide,
            )
            if self._offer.executed:
                self._scanner.follow_results()
        return self._complete(self._scanner.feed(text))

    def _complete(self, found: list[Finding], *, is_last: bool = False) -> list[Finding]:
        """Give every argument its key; a call for which none fits is broken.

        Marks that belong to no call are removed.
        """
        completed: list[Finding] = []
        for one in self._stray.filter(found, is_last=is_last):
            if not isinstance(one, findings.FoundCalls):
                completed.append(one)
                continue
            calls = [unnamed.complete(call, self._offer.everything) for call in one.calls]
            if None in calls:
                completed += (findings.RefusedText(Reason.BROKEN), findings.Prose(one.source))
            else:
                completed.append(replace(one, calls=tuple(filter(None, calls))))
        return completed

    def _may_cut(self, source: str, calls: Sequence[WrittenCall]) -> bool:
        """Return whether calls of offered tools are the model's own words, and no example."""
        offer = self._offer
        if not all(_tool_of(offer, call) for call in calls):
            return False
        asked_about = (is_asked_about(call.name, text) for call in calls for text in offer.spoken)
        return self._earlier.find_origin(source, calls) is Origin.MODEL and not any(asked_about)

    def _may_hide(self, mark: str) -> bool:
        """Return whether a mark of results is the model's own, and nothing that it was given."""
        return not _is_given(self._offer.quotable, mark)

    @cached_property
    def _earlier(self) -> EarlierTexts:
        return EarlierTexts(self._offer.spoken, self._offer.results)

    def read(self, event: ReplyEvent) -> list[Heard]:
        """Take one event of the backend and return what the model said with it."""
        match event:
            case TextDelta(text):
                return self._hear_split(self._splitter.feed(text))
            case ToolCallArgumentsDelta(index, text):
                call = self.structured.get(index)
                if call is not None:
                    call.arguments.append(text)
                    if call.message is not None:
                        return self._respond(call.message.feed(text))
            case ReasoningDelta():
                return [self._reason(event)]
            case ToolCallStarted(index) if index not in self.structured:
                return self._start_structured(event)
            case _:
                pass
        return []

    def has_call(self, index: int) -> bool:
        """Whether a call that the backend recognized has this index, and is no message."""
        call = self.structured.get(index)
        return call is not None and call.message is None

    def finish(self, reason: str, *, is_unseen: bool = False) -> tuple[list[Heard], ReadReply]:
        """End the reply; return what was held back, and the whole.

        If nobody has seen anything of it (`is_unseen`), whatever precedes a lone end of thinking
        was thoughts: the prompt had opened them.
        """
        heard = self._hear_split(self._splitter.finish())
        if self._labels is not None:
            heard += self._hear_labelled(self._labels.finish())
        cut_off = is_cut(reason)
        if self._scanner is not None:
            last = self._complete(self._scanner.finish(cut_off=cut_off), is_last=True)
            if self.structured:
                last = without_lone_marks(last, partial(_is_given, self._offer.quotable))
            heard += self._hear_findings(self._find_beginning(last))
        heard += self._settle()
        heard += self._end_structured(is_whole=not cut_off)
        self._drop_leak()
        self._count_thought_calls()
        if not (self.calls or self._text) and not cut_off:
            self._search_reasoning()
        calls = tuple(self.calls)
        text = "".join(self._text)
        is_ended = self._splitter.has_ended
        if text and (is_unseen or self._ends_thoughts) and not self._has_responded:
            thoughts, said = split_unopened(text)
            is_ended |= bool(thoughts)
            if is_unseen and thoughts:
                text = said
                heard.append(self._reason(ReasoningDelta(thoughts)))
        self._facts += (EndedThoughts(),) if is_ended else ()
        return heard, ReadReply(
            text,
            calls,
            reason,
            has_responded=self._has_responded,
            is_cut_off=self._is_cut_off,
            is_botched=self._is_broken,
            facts=tuple(self._facts),
            ambiguous=tuple(self._doubted),
            result_texts=tuple(self._result_texts),
            misplaced=self._misplaced,
            thoughts="".join(self._reasoning),
            markup="" if self._markup_at is None else "".join(self._text[self._markup_at :]),
        )

    def _count_thought_calls(self) -> None:
        """Count the calls in thoughts if nothing follows them."""
        if self.calls or self._has_answered:
            self._facts += (Refused(Reason.IN_THOUGHTS.value) for _ in self._thought_facts)
        else:
            self._facts += self._thought_facts
            self.calls += self._thought_calls

    def _drop_leak(self) -> None:
        """Drop the rest of a call next to calls that the backend read whole."""
        if not (self.structured and self._stray.has_leak) or self._markup_at is None:
            return
        if all(_is_fit(self._offer, call) for call in self.calls):
            del self._text[self._markup_at :]
            self._is_broken, self._markup_at = False, None
            self._facts.append(Dropped("stray_mark"))

    def _find_beginning(self, last: list[Finding]) -> list[Finding]:
        """Take the beginning of a call on the last lines of a reply for one that is not closed."""
        at = next((n for n, one in enumerate(last) if isinstance(one, findings.RefusedText)), None)
        if at is None:
            return last
        rest = last[at:]
        if any(one != _NOT_A_CALL and not isinstance(one, findings.Prose) for one in rest):
            return last
        before = "".join((*self._text[-1:], *_prose_of(last[:at])))
        text = "".join(_prose_of(rest))
        is_apart = not before or before.endswith(_LINE) or text.startswith(_LINE)
        if not is_apart or not begins_call(text, self._offer.everything):
            return last
        return [*last[:at], findings.RefusedText(Reason.NOT_CLOSED), findings.Prose(text)]

    def _hear_split(self, spoken: list[Spoken]) -> list[Heard]:
        heard: list[Heard] = []
        for event in spoken:
            if isinstance(event, ReasoningDelta):
                heard.append(self._reason(event))
            elif isinstance(event, AddressedText):
                heard += self._say(event.text)
            elif self._labels is not None:
                heard += self._hear_labelled(self._labels.feed(event.text))
            else:
                heard += self._hear_findings(self._scan(event.text))
        return heard

    def _hear_labelled(self, pieces: list[Labelled]) -> list[Heard]:
        heard: list[Heard] = []
        for piece in pieces:
            if self._has_ended:
                break
            match piece:
                case ReasoningDelta():
                    heard.append(self._reason(piece))
                case FinalAnswer(text) if self._offer.respond is not None:
                    heard += self._respond(text)
                case FinalAnswer(text) | TextDelta(text):
                    heard += self._hear_findings(self._scan(text))
                case InventedResult():
                    self._facts.append(Dropped("invented_result"))
        return heard

    def _hear_findings(self, found: Iterable[Finding]) -> list[Heard]:
        heard: list[Heard] = []
        for finding in found:
            if self._has_ended:
                break
            if self._late:
                self._late.append(finding)
            else:
                heard += self._hear_finding(finding)
            if isinstance(finding, findings.FoundCalls):
                self._stop_repeating(finding)
            elif isinstance(finding, findings.LeftOut) and finding.ends_reply:
                self._stop()
            elif isinstance(finding, findings.Prose) and self._late:
                self._count_copies(finding.text)
        return heard

    def _stop(self) -> None:
        """Stop the model at its next piece of text."""
        self._splitter, self._has_ended = EndedSplitter(), True

    def _count_copies(self, text: str) -> None:
        """Stop the model where words stand between the copies of one call."""
        sources = (one.source for one in self._late if isinstance(one, findings.FoundCalls))
        self._copies += max((text.count(source.strip()) for source in sources), default=0)
        if self._copies >= MOST_SAME - 1:
            self._stop()

    def _hear_finding(self, finding: Finding) -> list[Heard]:
        match finding:
            case findings.Prose(text):
                return self._say(text)
            case findings.ArgumentsStarted(name):
                self._message = MessageDecoder() if self._offer.is_respond(name) else None
            case findings.ArgumentsText(text):
                return self._respond(self._message.feed(text)) if self._message else []
            case findings.FoundCalls():
                return self._find(finding)
            case findings.Gap(text):
                return self._say(text) if self._is_behind_text else []
            case findings.ResultText():
                return self._hear_result(finding)
            case _:
                self._note_finding(finding)
        return []

    def _note_finding(self, finding: Finding) -> None:
        match finding:
            case findings.RefusedText(reason):
                self._refuse(reason)
            case findings.LeftOut(what):
                self._facts.append(Dropped(what))
            case findings.EarlierThoughts(is_over):
                self._end_thoughts(is_over=is_over)
            case _:
                pass

    def _find(self, found: findings.FoundCalls) -> list[Heard]:
        """Note calls; text after them counts too, unless they are messages."""
        if all(map(self._is_message, found.calls)):
            return self._promote(found)
        if found.is_doubtful and not self._may_be_asked(found):
            self._is_behind_text = True
            return self._say(found.lead + found.source)
        self._late.append(found)
        return []

    def _may_be_asked(self, found: findings.FoundCalls) -> bool:
        """Return whether the model may be asked about a call, whatever follows it."""
        call = Standing(around=_around(found), before=found.before, format=self._format_of(found))
        is_text = found.is_marked and decide(call) is Treatment.TEXT
        return not is_text and self._offer.text_policy is not TextPolicy.ACCEPT

    def _format_of(self, found: findings.FoundCalls) -> Format:
        is_own = found.syntax_name in self._offer.own_syntaxes
        return Format.OWN if is_own else Format.FOREIGN

    def _is_message(self, call: WrittenCall) -> bool:
        return self._offer.is_respond(call.name) or self._offer.is_answer(call)

    def _settle(self) -> list[Heard]:
        """Decide about the calls found so far, then read what came after the first of them."""
        if not self._late:
            return []
        late, self._late = _without_beginnings(self._late), []
        sequels: list[str] = []
        words, is_cited = "", False
        for finding in reversed(late):
            sequels.append(words)
            if isinstance(finding, findings.Prose):
                words = "" if is_cited else (finding.text + words)[:_MOST_BEHIND]
            elif isinstance(finding, findings.EarlierThoughts | findings.RefusedText):
                words = ""
                is_cited = isinstance(finding, findings.RefusedText)  # by the words before it
            elif isinstance(finding, findings.FoundCalls):
                is_cited = False
        said = "".join(self._text)
        said += "".join(one.text for one in late if isinstance(one, findings.Prose))
        heard: list[Heard] = []
        for finding in late:
            words = sequels.pop()
            if isinstance(finding, findings.FoundCalls):
                heard += self._treat(finding, words, said)
            else:
                heard += self._hear_finding(finding)
        return heard

    def _treat(self, found: findings.FoundCalls, words: str = "", said: str = "") -> list[Heard]:
        """Treat a call as the table says; `words` follow it, `said` is all that is said."""
        offer, origin = self._offer, Origin.MODEL
        calls = tuple(_resolve(offer, call) for call in found.calls)
        if offer.choice is ToolUse.AUTO and offer.quotable:
            origin = self._earlier.find_origin(found.source, calls)
        before = self._classify_lead(found, calls)
        behind = _classify_words(words, said)
        content = Content.MARKED if found.is_marked else Content.PLAIN
        if self._holds_places(found, said, is_asking=behind is Words.ASKING):
            content = Content.PLACEHOLDERS
        is_within = _is_within(found, words) or _is_in_fence(found, said)
        around = Around.LAYOUT if is_within else _around(found)
        treatment = decide(
            Standing(origin, around, before, behind, content, self._format_of(found))
        )
        if treatment is Treatment.LEFT_OUT:
            self._facts.append(Dropped("placeholders"))
            self._is_behind_call, self._is_behind_text = True, False
            return []
        if treatment is Treatment.READ and not (found.is_doubtful or self._doubted):
            return self._promote(found)
        is_fit = all(_is_fit(offer, call) for call in found.calls)
        is_doubted = is_fit and treatment is not Treatment.TEXT
        reason = _refusal(origin, is_doubted=is_doubted)
        if reason or (found.is_marked and not found.is_doubtful):
            self._facts.append(Refused(reason or Reason.QUOTED.value))
        source = found.lead + found.source
        if is_doubted:
            self._doubted.append(AmbiguousCall(source, calls, is_denied=origin is Origin.RESULT))
        heard = self._say(source, is_held=any(has_run(call, offer) for call in calls))
        self._is_behind_text = True
        return heard

    def _classify_lead(self, found: findings.FoundCalls, calls: Sequence[WrittenCall]) -> Words:
        """Classify the words before a call; Python in a code fence may have been asked for."""
        before = found.before
        if before is Words.OTHER and asks_user("".join(self._text)):
            before = Words.ASKING
        if not _PYTHON_FENCE.match(found.source):
            return before
        offer = self._offer
        is_asked = any(
            _PYTHON.search(text) or any(is_asked_about(call.name, text) for call in calls)
            for text in offer.spoken
        )
        is_led = before is Words.NONE or announces("".join(self._text), self._names)
        is_meant = is_led and not is_asked and all(_is_fit(offer, call) for call in calls)
        return before if is_meant else Words.SHOWING

    def _holds_places(self, found: findings.FoundCalls, said: str, *, is_asking: bool) -> bool:
        """Return whether a call beside an answer has placeholders for all required values."""
        if len(said.split()) < _ACCOUNT_WORDS:
            return False
        fillers = (_is_filler(self._offer, call) for call in found.calls)
        return all(fillers) and (is_asking or not announces(said, self._names))

    def _promote(self, found: findings.FoundCalls) -> list[Heard]:
        message, self._message = self._message, None
        self._is_behind_call, self._is_behind_text = True, False
        heard: list[Heard] = []
        for call in found.calls:
            self._facts.append(Rescued(found.syntax_name, call.name))
            if self._is_message(call):
                heard += self._end_message(message or MessageDecoder(), call)
                message = None
            elif not self._is_repeated(call, is_marked=found.is_marked):
                self.calls.append(call)
        return heard

    def _hear_result(self, block: findings.ResultText) -> list[Heard]:
        """Hide a result block; words in it are an answer unless they contain a call or a block."""
        content = block.text.strip()
        is_copy = any(content == text.strip() for text in self._offer.results)
        calls = self._find_calls(content)
        holds_more = bool(calls) or holds_call(content) or holds_block(content)
        if not content or is_copy or content[0] in "{[`<" or holds_more:
            self._result_texts.append(content)
            self._misplaced += calls
        else:
            self._facts.append(_INVENTED_RESULT)
            return self._say(content)
        self._facts.append(_INVENTED_RESULT)
        return []

    def _find_calls(self, text: str) -> tuple[WrittenCall, ...]:
        found = find_calls(text, self._offer.readable_syntaxes, self._names, self._named)
        groups = (one.calls for one in found if isinstance(one, findings.FoundCalls))
        return tuple(chain.from_iterable(groups))

    def _stop_repeating(self, last: findings.FoundCalls) -> None:
        """Stop the model where it makes no more progress.

        That is after an invented result, after the third copy of a call, and in a retry after a
        second call that does not fit its tool, as the next attempt is constrained.
        """
        late = [one for one in self._late if isinstance(one, findings.FoundCalls)]
        calls = [call for one in late for call in one.calls]
        if not calls:  # it was the respond tool, which is no call
            return
        is_runaway = calls.count(calls[-1]) >= MOST_SAME
        is_invalid = len(late) > 1 and not any(_is_fit(self._offer, call) for call in calls)
        if last.ends_reply or is_runaway or (self._is_retry and is_invalid):
            if last.ends_reply and not is_runaway:
                self._facts.append(_INVENTED_RESULT)
            self._stop()

    def _is_repeated(self, call: WrittenCall, *, is_marked: bool) -> bool:
        """Return whether this reply has made the same call before, so that it counts once.

        Two calls with marks of their own may be meant, as where dice are rolled twice.
        """
        most = MOST_SAME if is_marked else 2
        if _REPEATED not in self._facts and self.calls.count(call) + 1 < most:
            return False
        if call not in self.calls:
            return False
        first = self.calls.index(call)
        self.calls[first + 1 :] = [other for other in self.calls[first + 1 :] if other != call]
        self._facts += () if _REPEATED in self._facts else (_REPEATED,)
        return True

    def _start_structured(self, started: ToolCallStarted) -> list[Heard]:
        """Begin a call; white space before it is text, unless the call is a message."""
        if len(self.structured) == MOST_CALLS:
            self._facts += () if _TOO_MANY in self._facts else (_TOO_MANY,)
            return []
        settled = self._hear_split(self._splitter.settle()) + self._settle()
        message = MessageDecoder() if self._offer.is_respond(started.name) else None
        call = _StructuredCall(started, message, len(self.calls))
        self.structured[started.index] = call
        space = self._splitter.take_space()
        if self._scanner is not None:
            space += self._scanner.take_space()
        return settled + (self._say(space) if space and message is None else [])

    def _end_structured(self, *, is_whole: bool) -> list[Heard]:
        """End the calls that the backend recognised, each at its place among those in text."""
        heard: list[Heard] = []
        before = 0
        for call in self.structured.values():
            written = WrittenCall(call.started.name, "".join(call.arguments), call.started.id)
            if call.message is not None and is_whole and _is_botched(call.message, written):
                self._is_broken = True
                if self._markup_at is None:
                    self._markup_at = len(self._text)
                heard.append(BrokenCall(self._append(str(written.arguments), is_message=True)))
            elif call.message is not None:
                heard += self._end_message(call.message, written)
            elif is_whole and self._offer.is_answer(written):
                self._facts.append(Dropped("answer_tool"))
                heard += self._end_message(MessageDecoder(), written)
            else:
                calls = self._reread(written) if is_whole else (written,)
                self.calls[call.position + before : call.position + before] = calls
                before += len(calls)
        return heard

    def _reread(self, written: WrittenCall) -> Sequence[WrittenCall]:
        """Return the calls that an engine's parser took for one."""
        may_be = swallowed.may_hold_calls(written) and self._offer.repairs and self._offer.rescues
        if not may_be:  # nearly always
            return (written,)
        calls = swallowed.reread(written, self._offer.readable_syntaxes, self._names)
        if calls[0] is not written:
            self._facts += (Repaired(call.name) for call in calls)
        return calls

    def _end_message(self, decoder: MessageDecoder, call: WrittenCall) -> list[Heard]:
        self._has_responded = True
        whole = extract_message(call.arguments)
        streamed = decoder.text  # differs from the whole only where a surrogate is broken
        return self._respond(whole[len(streamed) :] if whole.startswith(streamed) else "")

    def _end_thoughts(self, *, is_over: bool) -> None:
        """Treat the calls found so far as thoughts; refuse them if thoughts went on after them."""
        self._ends_thoughts = True
        if is_over:
            self._is_broken, self._markup_at = False, None
        rescued = [fact for fact in self._facts if isinstance(fact, Rescued)]
        if self._goes_on:
            self._facts = [fact for fact in self._facts if fact not in rescued]
            self._facts += (Refused(Reason.IN_THOUGHTS.value) for _ in rescued)
            self.calls.clear()
            rescued.clear()
        self._thought_facts += [one for one in rescued if not self._offer.is_respond(one.tool)]
        self._facts = [fact for fact in self._facts if fact not in self._thought_facts]
        self._thought_calls += self.calls
        self.calls.clear()
        self._has_answered = self._goes_on = False

    def _search_reasoning(self) -> None:
        """Look for calls at the end of the thoughts; none counts if thoughts go on after it."""
        thoughts = "".join(self._reasoning)
        calls: list[findings.FoundCalls] = []
        for finding in find_calls(
            thoughts, self._offer.readable_syntaxes, self._names, self._named
        ):
            if isinstance(finding, findings.FoundCalls):
                if not finding.is_marked or finding.is_doubtful:
                    return
                calls.append(finding)
            elif isinstance(finding, findings.Prose) and calls and not finding.text.isspace():
                return
        for call in calls:
            self._treat(call)

    def _reason(self, thought: ReasoningDelta) -> Heard:
        self._reasoning.append(thought.text)
        self._splitter.is_opened = False  # the engine splits thoughts itself, or they are over
        return thought

    def _refuse(self, reason: Reason) -> None:
        """Note that the prose to come was meant as a call, or looked like it."""
        if reason in _STOPPED and self._offer.stop_strings:
            reason = Reason.CUT_OFF  # most likely a stop string in the middle of the call
        self._refusal = reason
        self._is_cut_off |= reason is Reason.CUT_OFF
        if reason in _UNREAD and self._markup_at is None and self._message is None:
            self._markup_at = len(self._text)
        self._facts.append(Refused(reason.value))

    def _say(self, text: str, *, is_held: bool = False) -> list[Heard]:
        refusal, self._refusal = self._refusal, None
        if self._message is not None:  # the source of a respond call that stayed unfinished
            self._message = None
            return []
        if refusal is Reason.CUT_OFF:
            marked = [
                one.openings for one in (*self._offer.syntaxes, *self._named) if one.is_marked
            ]
            is_marked = text.lstrip().startswith(tuple(chain.from_iterable(marked)))
            if is_marked or begins_plain_call(text, self._names):
                self._facts.append(Dropped("cut_off_call"))
                return self._find_whole_calls(text)
        self._is_broken |= refusal in _BOTCHED
        at = -1 if is_held else self._find_explained(text)
        if at >= 0:
            return (self._say(text[:at]) if at else []) + self._say(text[at:], is_held=True)
        self._goes_on |= bool(self.calls) and not text.isspace()
        written = self._append(text, is_message=False)
        self._is_recited |= is_held
        is_held = self._is_broken or self._is_recited or bool(self._doubted)
        return [BrokenCall(written) if is_held else Prose(written)]

    def _find_explained(self, text: str) -> int:
        """Return where prose begins to explain calls after tools have run, -1 if nowhere.

        That is at calls which all have run, or with which nothing is left to do, and at a code
        fence within a line. What follows is shown once all of it is known.
        """
        if not self._offer.executed or self._is_recited:
            return -1
        calls = list_shown_calls(text, self._offer)
        is_done = bool(calls) and judge_progress(self._offer) is Progress.DONE
        if is_done or (calls and all(has_run(call, self._offer) for call in calls)):
            before = text[: envelope_starts(text)[0]].rstrip()
            return len(_FENCE_AT_END.sub("", before).rstrip())
        if FENCE not in text:  # nearly always
            return -1
        line = "".join(self._text[-2:]).rpartition(_LINE)[2]
        match = _INLINE_FENCE.search(line + text)
        return -1 if match is None else max(match.start() - len(line), 0)

    def _find_whole_calls(self, text: str) -> list[Heard]:
        """Find the plain calls before one that was cut off."""
        start = re.search(r"[\[{]", text)
        values = read_values(text[start.start() :], is_whole=False) if start else []
        calls = tuple(call for value in values for call in calls_in(value, is_marked=False))
        if calls and self._may_cut(text, calls):
            self._late.append(
                findings.FoundCalls("bare_json", calls, text, is_marked=False, closed=True)
            )
        return []

    def _respond(self, text: str) -> list[Heard]:
        self._has_responded = True
        return [RespondText(self._append(text, is_message=True))] if text else []

    def _append(self, text: str, *, is_message: bool) -> str:
        """Add to the answer; prose is separated from a message, and from prose before a call."""
        self._has_answered = self._has_answered or not text.isspace()
        is_other = self._ends_in_message is not is_message
        if is_other or self._is_behind_call:
            if self._text:
                text = (_PARAGRAPH if is_other else _LINE) + text
            self._ends_in_message = is_message
            self._is_behind_call = False
        self._text.append(text)
        return text


def _is_given(texts: Sequence[str], mark: str) -> bool:
    return any(mark in text for text in texts)


def _prose_of(heard: Iterable[Finding]) -> Iterator[str]:
    return (one.text for one in heard if isinstance(one, findings.Prose))


def _is_botched(decoder: MessageDecoder, call: WrittenCall) -> bool:
    """Return whether arguments have no message in them, and are no words either."""
    written = str(call.arguments).strip()
    is_object = written.startswith("{") and parse_arguments(written) is None
    return is_object and not decoder.has_begun and extract_message(written) == written


def _without_beginnings(late: Sequence[Finding]) -> list[Finding]:
    """Leave out a call that was left open and is written once more right behind, to its end."""
    heard = [one for one in late if not isinstance(one, _ARGUMENTS)]
    begun = [
        one
        for one, other in pairwise(heard)
        if isinstance(one, findings.FoundCalls)
        and isinstance(other, findings.FoundCalls)
        and (one.closed, other.closed) == (False, True)
        and one.calls == other.calls
    ]
    return [one for one in late if one not in begun]


def _is_within(found: findings.FoundCalls, words: str) -> bool:
    """Return whether the element around a call is closed in the words after it."""
    if found.follows_mark and begins_with_mark(words):
        return True
    text = f"{found.source}\n{words}".casefold() if found.within else ""
    return any(closer in text for closer in found.within)


def _around(found: findings.FoundCalls) -> Around:
    """Tell a marked call within a sentence from others; see `Scanner`."""
    return Around.SENTENCE if found.is_doubtful and found.is_marked else Around.NOTHING


def _is_in_fence(found: findings.FoundCalls, said: str) -> bool:
    """Return whether a marked call is in a code fence that other words introduce."""
    is_fenced = found.source.startswith(FENCE) and holds_mark(found.source)
    return is_fenced and found.before is Words.OTHER and not announces(said)


def _classify_words(words: str, said: str) -> Words:
    """Classify the words after a call and the end of all that is said."""
    if not words.strip():
        return Words.NONE
    if shows_last(words):
        return Words.SHOWING
    return Words.ASKING if is_question(said) or asks_user(words) else Words.OTHER


def _refusal(origin: Origin, *, is_doubted: bool) -> str:
    if origin is not Origin.MODEL:
        return "quoted_from_history"
    return Reason.DOUBTFUL.value if is_doubted else ""


def _is_filler(offer: OfferedTools, call: WrittenCall) -> bool:
    """Return whether every string that a tool requires is only a placeholder."""
    tool, arguments = _tool_of(offer, call), call.arguments
    schema = tool.parameters if tool is not None else None
    if not isinstance(schema, dict) or not isinstance(arguments, dict):
        return False
    known, required = schema.get("properties"), schema.get("required")
    if not isinstance(known, dict) or not isinstance(required, list):
        return False
    values = [
        (arguments.get(name), known.get(name))
        for name in map(str, required)
        if isinstance(arguments.get(name), str)
    ]
    return bool(values) and all(_fills(str(value), of) for value, of in values)


def _fills(value: str, schema: JsonValue) -> bool:
    copied = schema.values() if isinstance(schema, dict) else ()
    return not value.strip() or is_placeholder(value) or value in copied


def _tool_of(offer: OfferedTools, call: WrittenCall) -> Tool | None:
    return names.find_tool(offer.aliases.get(call.name, call.name), offer.everything)


def _resolve(offer: OfferedTools, call: WrittenCall) -> WrittenCall:
    tool = _tool_of(offer, call)
    return call if tool is None else WrittenCall(tool.name, call.arguments)


def _is_fit(offer: OfferedTools, call: WrittenCall) -> bool:
    tool = _tool_of(offer, call)
    return tool is not None and isinstance(check(tool, call.arguments), ValidArguments)
