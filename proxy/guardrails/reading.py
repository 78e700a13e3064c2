r"""Reads one reply while it arrives: reasoning, prose, messages of the respond tool, tool calls.

Theory of operation
-------------------
`ReplyReader` receives the events of a backend, returns the parts of the reply (`ReplyPart`), and at
the end a `ReadReply` for `review`. `inference.text_gate` decides which parts the client sees early.
Each of these objects has one task:

- `ReplyScanner` divides the text into reasoning, prose and spans that look like a call.
- `PendingFindings` stores a call that is not decided yet, with the text after it, and detects
  copies of the call.
- `provenance.decide` decides whether the model meant a call. Its table depends on facts that
  `call_facts.collect_facts` collects.
- `StructuredCall` is a call that the backend parsed, so the table does not apply to it. If the
  backend's parser read several calls as one call, `rescue.swallowed` splits it.
- `ReplyText` and `ReplyCalls` collect the text and the calls that the client receives.

The reader is in one of four states. Reasoning and structured calls may arrive in each of them:

              first call               structured call, or end of the reply
    CONTENT ─────────────▶ PENDING ──────────────────────────────────────────▶ CONTENT
      │  ▲                   │
      │  │ end of the call   │ no progress: an invented result, the third copy of a call
      ▼  │                   ▼
    MESSAGE                ENDED

- CONTENT: prose is returned at once. Prose after a broken or ambiguous call is returned as
  `WithheldText`. The explanation of a call that has run is also returned as `WithheldText`.
- MESSAGE: the arguments of the respond tool arrive, which a model calls to answer. The message in
  the arguments is returned at once.
- PENDING: the text after a call shows whether the model meant the call. So all findings are stored
  until the reply or the text ends.
- ENDED: later text is ignored, and `EnoughReadError` makes the caller stop the model. In a retry,
  a second call also ends the reply if no call so far is valid.

A call inside reasoning is accepted only if it ends the reasoning, and no answer and no other call
follows the reasoning. `find_final_calls` checks this for reasoning that the backend has separated.
Other reasoning is recognized only by its end mark; then `ReplyCalls` checks the calls before this
mark.

For example, `Let me look. <tool_call>{"name": "get_time", "arguments": {}}</tool_call>\nDone.`:

    "Let me look."           CONTENT   Prose("Let me look.") is returned at once
    "<tool_call>{...}</...>" PENDING   FoundCalls is stored until the text after it is known
    "Done."                  PENDING   Prose("Done.") is stored
    finish()                 CONTENT   CallFacts(before=OTHER, after=OTHER, content=MARKED): CALL
                                       Prose("\nDone.") is returned

The `ReadReply` then has the text `Let me look.\nDone.` and the call of `get_time`. With
`That was an example.` instead of `Done.` the decision is TEXT, and the reply has no call.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from enum import Enum
from itertools import pairwise

import msgspec

from proxy.conversation.endings import STOP, is_cut
from proxy.conversation.replies import (
    ReasoningDelta,
    ReplyEvent,
    TextDelta,
    ToolCallArgumentsDelta,
    ToolCallStarted,
)
from proxy.conversation.tools import Tool, WrittenCall
from proxy.facts import Dropped, EndedThoughts, Fact, Refused, Repaired, Rescued
from proxy.guardrails.call_facts import (
    NearbyText,
    collect_facts,
    find_context,
    find_format,
    find_shown_tool,
    is_valid,
)
from proxy.guardrails.executed_calls import has_run
from proxy.guardrails.labels import FinalAnswer, InventedResult
from proxy.guardrails.offer import OfferedTools, TextPolicy
from proxy.guardrails.reasoning import AddressedText, EnoughReadError, split_unopened
from proxy.guardrails.repetition import find_explanation
from proxy.guardrails.reply_scanner import ReplyScanner, ScannedPart
from proxy.guardrails.reply_text import (
    ReplyPart,
    ReplyText,
    RespondText,
    WithheldText,
    prose_in,
)
from proxy.guardrails.rescue import findings, swallowed
from proxy.guardrails.rescue.findings import Finding, FoundCalls, Prose
from proxy.guardrails.rescue.marks import contains_block, contains_call
from proxy.guardrails.rescue.provenance import CallFacts, Decision, Origin, decide
from proxy.guardrails.rescue.syntax import MOST_CALLS, MOST_SAME, Reason
from proxy.guardrails.respond import MessageDecoder, extract_message
from proxy.guardrails.transcript import parse_arguments
from proxy.guardrails.unparsed_calls.recognition import begins_call

# The maximum number of examined characters after a call. Only the first three sentences can mark
# the call as an example (`recognition.shows_last`).
_MOST_TEXT_AFTER = 2_000
# The start of a call in Python, perhaps in a code fence or a list.
_CODE = re.compile(r"\s*(?:```\w*\s*)?\[?\s*[\w.\\]+\(")
_REPEATED = Dropped("repeated_call")
_TOO_MANY = Dropped("too_many_calls")
_INVENTED_RESULT = Dropped("invented_result")
_CUT_OFF = Refused(Reason.CUT_OFF.value)
_IN_REASONING = Refused(Reason.IN_THOUGHTS.value)
# If the request has stop strings, a refusal for one of these reasons means that the call was cut
# off.
_STOPPED = (Reason.BROKEN, Reason.NOT_CLOSED)
# The reasons for which the text from the call to the end of the reply counts as broken.
_UNREADABLE = (*_STOPPED, Reason.NESTED, Reason.OUT_OF_ORDER, Reason.CUT_OFF)


class AmbiguousCall(msgspec.Struct, frozen=True):
    """Calls that the model may not have meant, with their text in the reply.

    If `is_denied`, the model copied the call from a tool result, and the user never named some of
    the call's values. Such a call is refused even if the model repeats it in another syntax.
    """

    source: str
    calls: tuple[WrittenCall, ...]
    is_denied: bool = False

    @property
    def is_code(self) -> bool:
        """Whether the call is a line of Python, such as `f(a=1)`, and not markup."""
        return _CODE.match(self.source) is not None


class ReadReply(msgspec.Struct, frozen=True):
    """A finished reply.

    - `text` contains all prose and all messages of the respond tool, and also the text of
      `ambiguous` calls. If the reply `is_broken`, `broken_end` is the part of the text from the
      first unreadable call to the end.
    - `calls` are the calls of the client's tools, not yet validated.
    - If the reply `is_cut_off`, the model was stopped within a call.
    - `result_texts` are the contents of result blocks that the model invented, and
      `misplaced_calls` are the calls in these blocks.
    """

    text: str = ""
    calls: tuple[WrittenCall, ...] = ()
    reason: str = STOP
    has_responded: bool = False
    is_cut_off: bool = False
    is_broken: bool = False
    facts: tuple[Fact, ...] = ()
    ambiguous: tuple[AmbiguousCall, ...] = ()
    broken_end: str = ""
    result_texts: tuple[str, ...] = ()
    misplaced_calls: tuple[WrittenCall, ...] = ()
    reasoning: str = ""

    @property
    def text_without_calls(self) -> str:
        """The text without the markup of broken and ambiguous calls; lines of code remain."""
        text = self.text.removesuffix(self.broken_end)
        for call in reversed(self.ambiguous):
            # A line of code is kept: users can read it, and without it a proposal makes no sense.
            # Markup is removed at its last occurrence, because an earlier occurrence may be a
            # quotation.
            if not call.is_code:
                before, _, after = text.rpartition(call.source)
                text = before + after
        return text


class State(Enum):
    """The state of a `ReplyReader`; the module docstring has a diagram of the transitions."""

    CONTENT = "content"
    MESSAGE = "message"
    PENDING = "pending"
    ENDED = "ended"


class StructuredCall(msgspec.Struct):
    """A call that the backend parsed.

    If it calls an answer tool, `message` decodes the message while the arguments arrive.
    """

    started: ToolCallStarted
    message: MessageDecoder | None
    position: int  # the number of calls in the text that precede this call
    arguments: list[str] = msgspec.field(default_factory=list)

    @property
    def call(self) -> WrittenCall:
        return WrittenCall(self.started.name, "".join(self.arguments), self.started.id)


class PendingFindings:
    """The first undecided call and all findings after it."""

    def __init__(self) -> None:
        self.findings: list[Finding] = []
        # source of a pending call -> the number of its copies in later prose
        self._copies: Counter[str] = Counter()
        # source of a pending call -> the end of the prose so far, which may begin another copy
        self._prose: dict[str, str] = {}

    @property
    def matches(self) -> list[FoundCalls]:
        return [finding for finding in self.findings if isinstance(finding, FoundCalls)]

    def find_runaway(self, text: str) -> int:
        """Return the index in `text` after the last tolerated copy of a pending call, or -1.

        `text` is the prose that has just arrived. A copy may begin in earlier prose and end in
        `text`. The check is necessary because a model may repeat an ambiguous call as prose until
        it reaches `max_tokens`.
        """
        sources = {match.source.strip() for match in self.matches}
        ends = [self._find_last_copy(source, text) for source in sources]
        return min((end for end in ends if end >= 0), default=-1)

    def _find_last_copy(self, source: str, text: str) -> int:
        before = self._prose.get(source, "")
        prose, start = before + text, 0
        while (index := prose.find(source, start)) >= 0:
            start = index + len(source)
            self._copies[source] += 1
            if self._copies[source] == MOST_SAME - 1:
                return start - len(before)
        # Another copy can begin only in the last characters.
        self._prose[source] = prose[max(start, len(prose) - len(source) + 1) :]
        return -1

    def take(self) -> list[tuple[Finding, str]]:
        """Return and remove the findings, each with the prose after it up to the next call.

        The prose after a finding excludes reasoning and quotations of other calls, because these do
        not show whether the model meant the call.
        """
        pending, self.findings = _remove_repeated_starts(self.findings), []
        reversed_pairs: list[tuple[Finding, str]] = []
        text, is_quotation = "", False
        for finding in reversed(pending):
            reversed_pairs.append((finding, text))
            if isinstance(finding, Prose):
                text = "" if is_quotation else (finding.text + text)[:_MOST_TEXT_AFTER]
            elif isinstance(finding, findings.EarlierReasoning | findings.RefusedText):
                text = ""
                is_quotation = isinstance(finding, findings.RefusedText)
            elif isinstance(finding, FoundCalls):
                is_quotation = False
        return reversed_pairs[::-1]


class ReplyCalls:
    """Collects the calls of a reply that the client receives.

    Calls in reasoning are stored until the end of the reply, when `finish` accepts or refuses them.
    """

    def __init__(self) -> None:
        self.calls: list[WrittenCall] = []
        self.facts: list[Fact] = []
        self._in_reasoning: list[WrittenCall] = []
        self._facts_in_reasoning: list[Rescued] = []

    def note_once(self, fact: Fact) -> None:
        if fact not in self.facts:
            self.facts.append(fact)

    def add(self, call: WrittenCall, *, is_marked: bool) -> None:
        """Add a call unless it repeats an earlier call.

        Two equal marked calls are accepted, for example to roll dice twice. A third equal call
        shows that the model is in a loop. Then only the first of the equal calls is kept (see
        `MOST_SAME`).
        """
        limit = MOST_SAME if is_marked else 2
        may_repeat = _REPEATED not in self.facts and self.calls.count(call) + 1 < limit
        if may_repeat or call not in self.calls:
            self.calls.append(call)
            return
        start = self.calls.index(call) + 1
        self.calls[start:] = [other for other in self.calls[start:] if other != call]
        self.note_once(_REPEATED)

    def end_reasoning(self, respond: str, *, is_considered: bool) -> None:
        """Treat all calls so far as calls in reasoning.

        If text follows the calls, the model only considered them (`is_considered`), and they are
        refused.
        """
        rescued = [fact for fact in self.facts if isinstance(fact, Rescued)]
        if is_considered:
            self.facts = [fact for fact in self.facts if fact not in rescued]
            self.facts += [_IN_REASONING] * len(rescued)
            self.calls.clear()
            rescued.clear()
        self._facts_in_reasoning += [fact for fact in rescued if fact.tool != respond]
        self.facts = [fact for fact in self.facts if fact not in self._facts_in_reasoning]
        self._in_reasoning += self.calls
        self.calls.clear()

    def finish(self, *, has_answer: bool) -> None:
        """Accept the calls in reasoning if neither a call nor an answer follows them."""
        if self.calls or has_answer:
            self.facts += [_IN_REASONING] * len(self._facts_in_reasoning)
        else:
            self.facts += self._facts_in_reasoning
            self.calls += self._in_reasoning


class ReplyReader:
    """Reads the events of one reply; see the theory of operation."""

    def __init__(self, offer: OfferedTools, *, is_retry: bool = False) -> None:
        self._offer = offer
        self._is_retry = is_retry
        self._scanner = ReplyScanner(offer)
        self._text = ReplyText()
        self._calls = ReplyCalls()
        self._pending = PendingFindings()
        self.structured: dict[int, StructuredCall] = {}  # by the backend's index of the call
        self._message: MessageDecoder | None = None
        self._reasoning: list[str] = []
        self._ambiguous: list[AmbiguousCall] = []
        self._result_texts: list[str] = []
        self._misplaced_calls: list[WrittenCall] = []
        self._refusal: Reason | None = None  # the reason why the next prose is not a call
        self._has_responded = False
        self._has_ended = False
        self._closes_reasoning = False
        self._explains_calls = False
        self._keeps_gap = False  # True if the space after the last call becomes text like this call

    @property
    def state(self) -> State:
        if self._has_ended:
            return State.ENDED
        if self._pending.findings:
            return State.PENDING
        return State.CONTENT if self._message is None else State.MESSAGE

    @property
    def calls(self) -> list[WrittenCall]:
        return self._calls.calls

    def has_call(self, index: int) -> bool:
        """Return whether the backend parsed a call with this index that is not a message."""
        call = self.structured.get(index)
        return call is not None and call.message is None

    def read(self, event: ReplyEvent) -> list[ReplyPart]:
        """Read one event of the backend; raise `EnoughReadError` for text in the state ENDED."""
        match event:
            case TextDelta(text):
                if self._has_ended:
                    raise EnoughReadError
                return self._read_parts(self._scanner.feed(text))
            case ToolCallArgumentsDelta(index, text):
                call = self.structured.get(index)
                if call is not None:
                    call.arguments.append(text)
                    if call.message is not None:
                        return self._add_message(call.message.feed(text))
            case ReasoningDelta():
                return [self._add_reasoning(event)]
            # A second start of the same call is ignored.
            case ToolCallStarted(index) if index not in self.structured:
                return self._start_structured_call(event)
            case _:
                pass
        return []

    def finish(self, reason: str, *, is_unseen: bool = False) -> tuple[list[ReplyPart], ReadReply]:
        """End the reply; return the parts that were held back, and the complete reply.

        If the reply contains the end mark of a reasoning block and no opening mark, the prompt had
        opened the block. If the client has seen no part of the reply (`is_unseen`), the text before
        this mark becomes reasoning.
        """
        if self._has_ended:  # the caller stopped the model, so `reason` is not the model's
            reason = STOP
        is_cut_off, text = is_cut(reason), self._text
        parts = self._read_parts(self._scanner.flush())
        last = self._scanner.finish(
            is_cut_off=is_cut_off, has_structured_calls=bool(self.structured)
        )
        before = "".join(text.pieces[-1:])
        parts += self._read_parts(mark_unclosed_call(last, before, self._offer.everything))
        parts += self._decide_pending()
        parts += self._end_structured_calls(is_complete=not is_cut_off)
        self._drop_leak()
        self._calls.finish(has_answer=text.has_answer)
        # If the model forgot the end mark of its reasoning, a backend that separates reasoning has
        # put the following call into the reasoning as well. If the reply has an answer or was cut
        # off, the model only considered the calls in the reasoning.
        if not (self.calls or text.pieces or is_cut_off):
            for match in find_final_calls(self._scanner.find_calls("".join(self._reasoning))):
                self._decide(match)
        content = str(text)
        has_ended_reasoning = self._scanner.has_closed_reasoning
        if content and (is_unseen or self._closes_reasoning) and not self._has_responded:
            reasoning, answer = split_unopened(content)
            has_ended_reasoning |= bool(reasoning)
            if is_unseen and reasoning:
                content = answer
                parts.append(self._add_reasoning(ReasoningDelta(reasoning)))
        self._calls.facts += [EndedThoughts()] * has_ended_reasoning
        return parts, self._summarize(content, reason)

    def _summarize(self, text: str, reason: str) -> ReadReply:
        return ReadReply(
            text,
            tuple(self.calls),
            reason,
            has_responded=self._has_responded,
            is_cut_off=_CUT_OFF in self._calls.facts,
            is_broken=self._text.is_broken,
            facts=tuple(self._calls.facts),
            ambiguous=tuple(self._ambiguous),
            broken_end=self._text.broken_end,
            result_texts=tuple(self._result_texts),
            misplaced_calls=tuple(self._misplaced_calls),
            reasoning="".join(self._reasoning),
        )

    # The parts that the scanner finds.

    def _read_parts(self, scanned: Iterable[ScannedPart]) -> list[ReplyPart]:
        parts: list[ReplyPart] = []
        for part in scanned:
            if self._has_ended:
                break
            match part:
                case ReasoningDelta():
                    parts.append(self._add_reasoning(part))
                case AddressedText(text):
                    parts += self._add_text(text)
                case FinalAnswer(text):
                    parts += self._add_message(text)
                case InventedResult():
                    self._calls.facts.append(_INVENTED_RESULT)
                case _:
                    parts += self._read_finding(part)
        return parts

    def _read_finding(self, finding: Finding) -> list[ReplyPart]:
        parts: list[ReplyPart] = []
        is_runaway = False
        if self._pending.findings:
            # While a call is pending, prose is only stored, so without this check a model in a loop
            # would not be stopped.
            if isinstance(finding, Prose):
                end = self._pending.find_runaway(finding.text)
                is_runaway = end >= 0
                finding = Prose(finding.text[:end]) if is_runaway else finding
            self._pending.findings.append(finding)
        else:
            parts = self._process(finding)
        match finding:
            case FoundCalls():
                self._end_if_stuck(finding)
            case findings.DroppedText(ends_reply=True):
                self._end()
            case _ if is_runaway:
                self._end()
            case _:
                pass
        return parts

    def _process(self, finding: Finding) -> list[ReplyPart]:
        """Process a finding in the states CONTENT and MESSAGE."""
        match finding:
            case Prose(text):
                return self._add_text(text)
            case findings.ArgumentsStarted(name, is_marked):
                may_answer = is_marked and self._offer.may_be_answer(name)
                is_message = may_answer or self._offer.is_respond(name)
                self._message = MessageDecoder() if is_message else None
            case findings.ArgumentsText(text):
                return self._add_message(self._message.feed(text)) if self._message else []
            case FoundCalls():
                return self._process_calls(finding)
            case findings.Gap(text):
                return self._add_text(text) if self._keeps_gap else []
            case findings.ResultText():
                return self._process_result(finding)
            case _:
                self._note(finding)
        return []

    def _note(self, finding: Finding) -> None:
        match finding:
            case findings.RefusedText(reason):
                self._refuse(reason)
            case findings.DroppedText(name):
                self._calls.facts.append(Dropped(name))
            case findings.EarlierReasoning(is_over):
                self._end_reasoning(is_over=is_over)
            case _:
                pass

    def _end_if_stuck(self, last: FoundCalls) -> None:
        """End the reply if it makes no progress.

        It ends after an invented result, and after the third copy of a call. In a retry, it also
        ends after a second call if all calls are invalid, because the next attempt is constrained.
        """
        matches = self._pending.matches
        calls = [call for match in matches for call in match.calls]
        if not calls:  # as always for a message, because messages are never pending
            return
        is_runaway = calls.count(calls[-1]) >= MOST_SAME
        is_invalid = len(matches) > 1 and not any(is_valid(call, self._offer) for call in calls)
        if last.ends_reply or is_runaway or (self._is_retry and is_invalid):
            if last.ends_reply and not is_runaway:
                self._calls.facts.append(_INVENTED_RESULT)
            self._end()

    def _end(self) -> None:
        self._has_ended = True
        self._scanner.close()

    # Calls in the text.

    def _process_calls(self, match: FoundCalls) -> list[ReplyPart]:
        """Return a message at once, and store other calls until they are decided (PENDING).

        A doubtful call is returned as text at once if later text cannot make it ambiguous.
        """
        if all(map(self._is_message, match.calls)):
            return self._add_calls(match)
        if match.is_doubtful and not self._may_become_ambiguous(match):
            self._keeps_gap = True
            return self._add_text(match.lead + match.source)
        self._pending.findings.append(match)
        return []

    def _is_message(self, call: WrittenCall) -> bool:
        return self._offer.is_respond(call.name) or self._offer.is_answer(call)

    def _may_become_ambiguous(self, match: FoundCalls) -> bool:
        """Return whether later text can make a call ambiguous, so that a retry would follow."""
        known = CallFacts(
            context=find_context(match),
            before=match.before,
            format=find_format(match, self._offer),
        )
        # With the policy ACCEPT, the review does not retry a reply with ambiguous calls.
        is_text = match.is_marked and decide(known) is Decision.TEXT
        return not is_text and self._offer.text_policy is not TextPolicy.ACCEPT

    def _decide_pending(self) -> list[ReplyPart]:
        """Decide about the pending calls, and process the findings between them."""
        if not self._pending.findings:
            return []
        pending = self._pending.take()
        total = str(self._text) + prose_in([finding for finding, _ in pending])
        parts: list[ReplyPart] = []
        for finding, text_after in pending:
            if isinstance(finding, FoundCalls):
                parts += self._decide(finding, text_after, total)
            else:
                parts += self._process(finding)
        return parts

    def _decide(self, match: FoundCalls, text_after: str = "", total: str = "") -> list[ReplyPart]:
        """Decide about a call with the table of `provenance`, and apply the decision.

        If the table decides CALL for a call after an ambiguous call, this call also becomes
        ambiguous. Otherwise the client would run the second step of a plan without the first step.
        """
        offer = self._offer
        calls = tuple(_resolve(call, offer) for call in match.calls)
        nearby = NearbyText(str(self._text), text_after, total)
        facts = collect_facts(match, calls, nearby, offer=offer, earlier=self._scanner.earlier)
        decision = decide(facts)
        if decision is Decision.DROPPED:
            self._calls.facts.append(Dropped("placeholders"))
            self._text.follows_call, self._keeps_gap = True, False
            return []
        if decision is Decision.CALL and not (match.is_doubtful or self._ambiguous):
            return self._add_calls(match)
        are_valid = all(is_valid(call, offer) for call in match.calls)
        is_ambiguous = decision is not Decision.TEXT and are_valid
        reason = Reason.DOUBTFUL.value if is_ambiguous else ""
        if facts.origin is not Origin.MODEL:
            reason = "quoted_from_history"
        if reason or (match.is_marked and not match.is_doubtful):
            self._calls.facts.append(Refused(reason or Reason.QUOTED.value))
        source = match.lead + match.source
        if is_ambiguous:
            is_denied = facts.origin is Origin.RESULT
            self._ambiguous.append(AmbiguousCall(source, calls, is_denied=is_denied))
        parts = self._add_text(source, explains_calls=any(has_run(call, offer) for call in calls))
        self._keeps_gap = True
        return parts

    def _add_calls(self, match: FoundCalls) -> list[ReplyPart]:
        decoder, self._message = self._message, None
        self._text.follows_call, self._keeps_gap = True, False
        parts: list[ReplyPart] = []
        for call in match.calls:
            self._calls.facts.append(Rescued(match.syntax_name, call.name))
            if self._is_message(call):
                parts += self._end_message(decoder or MessageDecoder(), call)
                decoder = None
            else:
                self._calls.add(call, is_marked=match.is_marked)
        return parts

    def _process_result(self, block: findings.ResultText) -> list[ReplyPart]:
        """Hide an invented result block. If its content is words without markup, show the content.

        `<tool_response>{"ok": true}</tool_response>` is hidden. The words in
        `<tool_response>The mail was sent.</tool_response>` are the model's answer and are shown.
        """
        content = block.text.strip()
        matches = [
            finding
            for finding in self._scanner.find_calls(content)
            if isinstance(finding, FoundCalls)
        ]
        is_markup = content.startswith(("{", "[", "`", "<")) or bool(matches)
        is_markup = is_markup or contains_call(content) or contains_block(content)
        is_copy = any(content == result.strip() for result in self._offer.results)
        self._calls.facts.append(_INVENTED_RESULT)
        if content and not is_copy and not is_markup:
            return self._add_text(content)
        self._result_texts.append(content)
        self._misplaced_calls += [call for match in matches for call in match.calls]
        return []

    def _end_reasoning(self, *, is_over: bool) -> None:
        """Treat all text and calls so far as reasoning; refuse the calls if text follows them."""
        self._closes_reasoning = True
        if is_over:
            self._text.forget_broken()
        respond = "" if self._offer.respond is None else self._offer.respond.name
        self._calls.end_reasoning(respond, is_considered=self._text.continues_after_call)
        self._text.end_reasoning()

    def _add_reasoning(self, part: ReasoningDelta) -> ReasoningDelta:
        self._reasoning.append(part.text)
        self._scanner.note_reasoning()
        return part

    # Calls that the backend parsed.

    def _start_structured_call(self, started: ToolCallStarted) -> list[ReplyPart]:
        """Start a call; white space before the call is text, unless the call is a message."""
        if len(self.structured) == MOST_CALLS:
            self._calls.note_once(_TOO_MANY)
            return []
        # The text ends before a structured call, so the pending calls can be decided.
        parts = self._read_parts(self._scanner.settle()) + self._decide_pending()
        is_message = self._offer.is_respond(started.name) or self._offer.may_be_answer(started.name)
        message = MessageDecoder() if is_message else None
        self.structured[started.index] = StructuredCall(started, message, len(self.calls))
        space = self._scanner.take_space()
        return parts + (self._add_text(space) if space and message is None else [])

    def _end_structured_calls(self, *, is_complete: bool) -> list[ReplyPart]:
        """End all structured calls, and insert each at its position among the calls in the text."""
        parts: list[ReplyPart] = []
        inserted = 0
        for structured in self.structured.values():
            call, message = structured.call, structured.message
            if message is not None and is_complete and self._is_ordinary_call(call, message):
                message = None
            if message is not None and is_complete and _is_unreadable(message, call):
                self._text.is_broken = True
                self._text.begin_broken()
                parts.append(WithheldText(self._text.add(str(call.arguments), is_message=True)))
            elif message is not None:
                is_offered = self._offer.is_respond(call.name)
                self._calls.facts += () if is_offered else (Dropped("answer_tool"),)
                parts += self._end_message(message, call)
            else:
                calls = self._split_swallowed(call) if is_complete else (call,)
                position = structured.position + inserted
                self.calls[position:position] = calls
                inserted += len(calls)
        return parts

    def _is_ordinary_call(self, call: WrittenCall, message: MessageDecoder) -> bool:
        """Return whether a call with the name of an answer tool is an ordinary call.

        Only a call of an answer tool that was not offered can be an ordinary call. It is an
        ordinary call if its arguments contain more than the text of an answer. If the arguments are
        broken, it is an ordinary call unless the client has already received a part of the message.
        """
        if self._offer.is_respond(call.name) or self._offer.is_answer(call):
            return False
        return parse_arguments(str(call.arguments)) is not None or not message.has_begun

    def _split_swallowed(self, call: WrittenCall) -> Sequence[WrittenCall]:
        """Return the calls that the engine's parser read as one call."""
        offer = self._offer
        if not (swallowed.may_contain_calls(call) and offer.repairs and offer.rescues):
            return (call,)  # nearly every call; a second reading would be slow
        calls = swallowed.reread(call, offer.readable_syntaxes, offer.written_names)
        if calls[0] is not call:
            self._calls.facts += (Repaired(call.name) for call in calls)
        return calls

    def _drop_leak(self) -> None:
        """Remove the leaked end of a call that the backend has parsed completely.

        Some engines leak the end of a parsed call (`</parameter>`) into the text. If the leaked
        text were kept, the reply would count as broken, and the model would have to generate the
        valid call again.
        """
        is_leak = self.structured and self._scanner.has_leak and self._text.broken_from is not None
        if is_leak and all(is_valid(call, self._offer) for call in self.calls):
            self._text.remove_broken()
            self._calls.facts.append(Dropped("stray_mark"))

    # Text.

    def _refuse(self, reason: Reason) -> None:
        """Store the reason why the next prose is not a call, although it looks like a call."""
        if reason in _STOPPED and self._offer.stop_strings:
            reason = Reason.CUT_OFF  # most likely, a stop string ended the reply within the call
        self._refusal = reason
        if reason in _UNREADABLE and self._message is None:
            self._text.begin_broken()
        self._calls.facts.append(Refused(reason.value))

    def _add_text(self, text: str, *, explains_calls: bool = False) -> list[ReplyPart]:
        refusal, self._refusal = self._refusal, None
        if self._message is not None:  # `text` is an unfinished respond call
            self._message = None
            return []
        if refusal is Reason.CUT_OFF and self._scanner.begins_with_call(text):
            self._calls.facts.append(Dropped("cut_off_call"))
            complete = self._scanner.find_complete_calls(text)
            self._pending.findings += [] if complete is None else [complete]
            return []
        self._text.note_refusal(refusal)
        # Qwen2.5-Coder 1.5B explains the calls that it has made. The review rejects an explanation,
        # so the client must not receive the explanation before the review.
        if self._offer.executed and not (explains_calls or self._explains_calls):
            line = "".join(self._text.pieces[-2:]).rpartition("\n")[2]
            start = find_explanation(text, line, self._offer)
            if start >= 0:
                parts = self._add_text(text[:start]) if start else []
                return parts + self._add_text(text[start:], explains_calls=True)
        self._explains_calls |= explains_calls
        self._text.continues_after_call |= bool(self.calls) and not text.isspace()
        added = self._text.add(text, is_message=False)
        is_withheld = self._text.is_broken or self._explains_calls or bool(self._ambiguous)
        return [WithheldText(added) if is_withheld else Prose(added)]

    def _add_message(self, text: str) -> list[ReplyPart]:
        self._has_responded = True
        return [RespondText(self._text.add(text, is_message=True))] if text else []

    def _end_message(self, decoder: MessageDecoder, call: WrittenCall) -> list[ReplyPart]:
        """Return the part of the message that has not been returned yet.

        The part that was returned earlier is normally a prefix of the complete message, and the
        rest is returned here. If the message contains a broken surrogate, the earlier part is not a
        prefix, and nothing more is returned.
        """
        self._has_responded = True
        message, sent = extract_message(call.arguments), decoder.text
        return self._add_message(message[len(sent) :] if message.startswith(sent) else "")


def mark_unclosed_call(
    last: list[Finding], text_before: str, tools: Sequence[Tool]
) -> list[Finding]:
    """Mark the refused text at the end of a reply as an unclosed call if it begins like a call.

    `last` are the last findings of the reply, and `text_before` is the text before them.
    """
    refused = (n for n, finding in enumerate(last) if isinstance(finding, findings.RefusedText))
    start = next(refused, len(last))
    candidate = last[start:]
    not_a_call = findings.RefusedText(Reason.NOT_A_CALL)
    if any(finding != not_a_call and not isinstance(finding, Prose) for finding in candidate):
        return last
    before, text = text_before + prose_in(last[:start]), prose_in(candidate)
    starts_line = not before or before.endswith("\n") or text.startswith("\n")
    if not candidate or not starts_line or not begins_call(text, tools):
        return last
    return [*last[:start], findings.RefusedText(Reason.NOT_CLOSED), Prose(text)]


def find_final_calls(in_reasoning: Iterable[Finding]) -> list[FoundCalls]:
    """Return the marked calls at the end of the reasoning; [] if other text follows them."""
    matches: list[FoundCalls] = []
    for finding in in_reasoning:
        if isinstance(finding, FoundCalls):
            # In reasoning, models also write calls that they then decide not to make. Plain JSON is
            # often only considered, so only marked calls are returned.
            if not finding.is_marked or finding.is_doubtful:
                return []
            matches.append(finding)
        elif isinstance(finding, Prose) and matches and not finding.text.isspace():
            return []
    return matches


def _remove_repeated_starts(pending: Sequence[Finding]) -> list[Finding]:
    """Remove each unclosed call that is directly followed by the same call with a closing mark."""
    in_progress = (findings.ArgumentsStarted, findings.ArgumentsText, findings.Gap)
    complete = [finding for finding in pending if not isinstance(finding, in_progress)]
    open_calls = [
        call
        for call, after in pairwise(complete)
        if isinstance(call, FoundCalls)
        and isinstance(after, FoundCalls)
        and (call.closed, after.closed) == (False, True)
        and call.calls == after.calls
    ]
    return [finding for finding in pending if finding not in open_calls]


def _is_unreadable(decoder: MessageDecoder, call: WrittenCall) -> bool:
    """Return whether arguments are a broken JSON object without a readable message."""
    arguments = str(call.arguments).strip()
    is_object = arguments.startswith("{") and parse_arguments(arguments) is None
    return is_object and not decoder.has_begun and extract_message(arguments) == arguments


def _resolve(call: WrittenCall, offer: OfferedTools) -> WrittenCall:
    tool = find_shown_tool(call, offer)
    return call if tool is None else WrittenCall(tool.name, call.arguments)
