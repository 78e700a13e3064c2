"""Finds the calls in a reply while it arrives, and separates them from prose.

Theory of operation. `Scanner` makes one pass over a `Cursor`, in four modes:

- `InProse`: up to the next opening. White space, control tokens and a possible beginning of an
  opening are held back until it is known whether a call follows.
- `OpeningAttempt`: after an opening. The syntaxes that share the opening are tried in turn. The
  first syntax that reads a call decides where the call ends. If no syntax reads a call, the text
  that was read becomes prose. This prose is not searched again, which keeps the time linear.
- `AfterCall`: after a call. The next characters decide whether the call is accepted, reported as
  doubtful, or reported as prose. Surplus closing marks are skipped.
  - A marked call (its opening occurs only in calls) is accepted, unless a sentence continues after
    the call. In that case the call is doubtful.
  - A marked call without its closing mark is accepted only before another call or at the end of the
    reply.
  - An unmarked call is accepted only at the end of the reply, and only if it names offered tools.
- `Skipping`: inside a result that the model invented after a call, or copied instead of writing an
  answer.

| from | text | to | finding |
|---|---|---|---|
| InProse | an opening that may begin a call here | OpeningAttempt | |
| InProse | the mark of a result, alone on its line | Skipping | `ResultText` at its end |
| InProse | the end of reasoning | InProse, as at the start of a reply | `EarlierReasoning` |
| OpeningAttempt | a call | AfterCall | `ArgumentsStarted`, `ArgumentsText` |
| OpeningAttempt | no call | InProse | `RefusedText` if an opening was marked, `Prose` |
| AfterCall | a closing mark, a control token, white space | AfterCall | `Gap` |
| AfterCall | a line end, another call, a new sentence | InProse | `FoundCalls` |
| AfterCall | a sentence that continues | InProse | `FoundCalls`, doubtful |
| AfterCall | an invented result | Skipping | `FoundCalls`, `DroppedText` |

For example, `I look. <tool_call>{"name": "f", "arguments": {}}</tool_call><|im_end|>` takes these
steps:

    InProse         "I look." is prose; the space is held back
    OpeningAttempt  `<tool_call>` opens `hermes`, which reads f({})
    AfterCall       `<|im_end|>` ends a reply, so no sentence continues
    findings        Prose("I look."), FoundCalls("hermes", f({})), Gap("<|im_end|>")

Three objects contain the state of the scan. `Surroundings` tracks the prose and returns the
`Position` of an opening; quoted openings are ignored. `Siblings` stores the earlier calls, and
after a refused or broken call it refuses later calls. `Record` stores the findings. The scanner
reports each call with the facts about its position. `provenance` later decides whether the model
meant the call.

After an invented result, or at the third copy of a call, the rest of the reply is dropped, because
the reply makes no progress. After an end mark of reasoning the scanner starts again, because the
mark shows that the text before it was reasoning. Every decision depends on the text alone, not on
its division into deltas.
"""

from collections.abc import Callable, Collection, Sequence

from msgspec.structs import replace

from proxy import bounds
from proxy.guardrails.rescue import marks
from proxy.guardrails.rescue.findings import (
    DroppedText,
    Finding,
    FoundCalls,
    RefusedText,
    ResultText,
)
from proxy.guardrails.rescue.modes import (
    AfterCall,
    InProse,
    MayDropRest,
    Mode,
    OpeningAttempt,
    Skipping,
    never_drop_rest,
    openings_of,
)
from proxy.guardrails.rescue.position import LOOKAHEAD, is_in_sentence, is_separate
from proxy.guardrails.rescue.record import Record
from proxy.guardrails.rescue.rows import FENCE
from proxy.guardrails.rescue.syntax import NoCall, Reason, Syntax
from proxy.guardrails.rescue.values.cursor import Cursor, Literals

_HAS_GIVEN_UP = -1  # value of `_remaining_attempts` after the scanner has stopped searching
_REACT = "react"  # in this format, a result may be prose instead of JSON
# The maximum number of characters that are read at once. Each attempt copies the text that has
# arrived, so a reply of 5 MB in one delta would be copied hundreds of times.
_PIECE = 4_096
_NOTHING = Literals(())


class Scanner:
    """Finds the calls in one reply.

    - `named`: the syntaxes whose openings contain names of offered tools
    - `may_cut` receives calls and returns whether the model meant them; if so, an invented result
      after the calls may be dropped
    - `may_hide` receives the mark that begins a result, such as `<tool_response>`, and returns
      whether the result may be hidden
    """

    def __init__(
        self,
        syntaxes: Sequence[Syntax],
        offered: Collection[str],
        named: Sequence[Syntax] = (),
        *,
        may_cut: MayDropRest = never_drop_rest,
        may_hide: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self._openings = openings_of(tuple(syntaxes), tuple(named))
        self._offered = frozenset(offered)
        self._may_cut = may_cut
        self._may_hide = may_hide
        self._cursor = Cursor()
        self._cursor.offered = self._offered
        self._cursor.may_cut = may_cut is not never_drop_rest
        self._record = Record(self._offered)
        self._state: Mode = InProse(is_at_start=True)
        # Each syntax that shares an opening reads the text after the opening. After this number of
        # openings the rest of the reply is prose, which limits the time that a hostile reply can
        # cost.
        self._remaining_attempts = bounds.OPENINGS

    def follow_results(self) -> None:
        """Record that the reply follows tool results."""
        self._cursor.follows_results = True

    def feed(self, text: str) -> list[Finding]:
        """Add text that has arrived; return the new findings that are certain."""
        if self._is_plain(text):  # the fast path for most pieces of a reply
            self._record.add_prose(text)
            return self._record.report.take()
        for start in range(0, len(text), _PIECE):
            self._cursor.feed(text[start : start + _PIECE])
            while self._step():
                pass
        return self._record.report.take()

    def take_space(self) -> str:
        """Return the white space held back after prose. Call this only if no text follows."""
        if not isinstance(self._state, InProse):
            return ""
        if space := self._cursor.skip_last_space():
            self._record.add_prose(space)
        return self._record.take_space() if self._cursor.is_exhausted else ""

    def _is_plain(self, text: str) -> bool:
        """Return whether all text so far is prose, and no mark can begin in `text`."""
        is_idle = isinstance(self._state, InProse) and not self._state.is_at_start
        is_read = is_idle and self._remaining_attempts > 0 and self._cursor.is_exhausted
        return is_read and self._openings.in_prose.find(text, 0, is_finished=False) == len(text)

    def finish(self, *, cut_off: bool = False) -> list[Finding]:
        """End the reply and return the remaining findings; `cut_off` if the reply is incomplete."""
        self._cursor.finish()
        # If the reply is truncated, the attempt is not continued: the reader would close the
        # brackets of an incomplete call.
        is_broken_off = cut_off and isinstance(self._state, OpeningAttempt)
        while not is_broken_off and self._step():
            pass
        match self._state:
            case OpeningAttempt():
                self._cursor.consume_until(_NOTHING)
                self._record.refuse(Reason.CUT_OFF, self._source())
            case AfterCall(FoundCalls() as candidate, gap):
                reason = self._record.find_objection_at_end(candidate, cut_off=cut_off)
                if reason:
                    self._record.refuse(reason, candidate.source + "".join(gap))
                else:
                    self._record.accept(candidate)
            case AfterCall(None, gap):
                self._record.add_gap("".join(gap))
            case Skipping(_, content, opening) if content is not None:
                text = "".join((*content, self._cursor.consume_until(_NOTHING)))
                self._record.report.add(ResultText(text, opening + text, closed=False))
            case _:
                pass
        return self._record.end()

    def _step(self) -> bool:
        """Make one decision; return False if more text is needed."""
        state = self._state
        if isinstance(state, InProse):
            return self._read_prose(state)
        if isinstance(state, OpeningAttempt):
            return self._read_call(state)
        if isinstance(state, AfterCall):
            return self._read_after_call(state)
        return self._drop(state)

    # In prose.

    def _read_prose(self, state: InProse) -> bool:
        if self._remaining_attempts <= 0:
            return self._give_up()
        if state.is_at_start:
            literals = self._openings.at_start
            self._record.add_prose(self._cursor.skip_space())
        else:
            literals = self._openings.in_prose
            self._record.add_prose(self._cursor.consume_until(literals))
        if self._cursor.is_exhausted or (literal := self._cursor.literal_here(literals)) is None:
            return False
        self._remaining_attempts -= 1
        self._read_mark(state, literal)
        return True

    def _read_mark(self, state: InProse, literal: str) -> None:
        """Handle a possible opening, a leaked token, or a mark of results or reasoning."""
        if literal in marks.SPECIAL_TOKENS:
            self._cursor.advance(len(literal))
            self._record.report.hold(literal)  # a leaked token is not part of the line
        elif marks.ends_thoughts(literal):
            self._cursor.advance(len(literal))
            self._record.add_prose(literal)
            self._state = InProse()
            # A quoted `</think>` is a word. An unquoted one ends reasoning that the prompt has
            # begun.
            if not self._record.surroundings.is_quotation:
                self._restart()
        elif (end := marks.result_end(literal)) is not None and self._begins_result(literal):
            self._cursor.advance(len(literal))
            self._record.refuse_waiting()
            opening = self._record.report.take_space() + literal
            self._state = Skipping(end, [], opening, is_first=state.is_at_start)
        else:
            self._start_attempt(literal, is_first=state.is_at_start)

    def _begins_result(self, mark: str) -> bool:
        """Return whether a result begins here.

        A tag begins a result only at the start of a line. A quoted mark never begins a result,
        nor does a mark that the prompt contains (`may_hide`): if a user asks about
        `<tool_response>`, the answer must keep this mark.
        """
        surroundings = self._record.surroundings
        is_alone = surroundings.is_line_start or mark.startswith(marks.CONTROL_BEGINNINGS)
        return is_alone and not surroundings.is_quotation and self._may_hide(mark)

    def _give_up(self) -> bool:
        self._record.refuse_waiting()
        if self._remaining_attempts == 0 and not self._cursor.is_exhausted:
            self._remaining_attempts = _HAS_GIVEN_UP
            self._record.report.add(RefusedText(Reason.TOO_MANY_OPENINGS))
        self._record.report.add_prose(self._cursor.consume_until(_NOTHING))
        return False

    def _restart(self) -> None:
        self._record.restart()
        self._state = InProse(is_at_start=True)

    def _start_attempt(self, literal: str, *, is_first: bool) -> None:
        self._state = InProse()
        anchors = self._record.anchors(is_first=is_first)
        candidates = self._openings.find_candidates(literal, anchors)
        surroundings = self._record.surroundings
        is_line = literal.startswith("\n")
        if candidates and not (
            surroundings.is_next_line_quoted if is_line else surroundings.is_quotation
        ):
            self._record.begin(literal, is_first=is_first)
            # Markup before the call may enclose the call. Then the text after the call is needed,
            # and is not dropped.
            may_cut = never_drop_rest if self._record.position.follows_mark else self._may_cut
            self._state = OpeningAttempt(self._cursor, candidates, self._offered, may_cut)
            return
        if is_line:
            literal = "\n"  # the other characters of the opening are read as the next line
        self._cursor.advance(len(literal))
        if any(syntax.is_marked for _, syntax in candidates):
            self._record.report.add(RefusedText(Reason.QUOTED))
            self._record.add_prose(literal, surroundings.add_quoted)
        else:
            self._record.add_prose(literal)

    # After an opening.

    def _read_call(self, attempt: OpeningAttempt) -> bool:
        outcome = attempt.resume()
        findings = attempt.take_findings()
        if findings and not self._record.is_doubtful:
            for finding in findings:
                self._record.report.add(finding)
        if outcome is None:
            return False
        source = self._source()
        self._state = InProse()
        if isinstance(outcome, NoCall):
            self._refuse_read(attempt, outcome.reason, source)
            return True
        syntax = attempt.syntax
        position = self._record.position
        candidate = FoundCalls(
            syntax.name,
            outcome.calls,
            source,
            syntax.is_marked,
            outcome.closed,
            position.lead,
            position.layout,
            position.follows_mark,
        )
        if position.is_example:
            self._record.siblings.refuse(Reason.QUOTED, candidate)
            self._record.refuse_example(source)
        elif outcome.is_bare and is_in_sentence(position, [call.name for call in candidate.calls]):
            self._record.report_doubtful(None, candidate, "")
        else:
            self._accept_or_wait(candidate, is_doubtful=outcome.is_doubtful, is_cut=outcome.is_cut)
        return True

    def _cut(self, candidate: FoundCalls | None) -> None:
        """Accept calls that are still pending, and drop the rest of the reply."""
        if candidate is None:
            self._record.report.add(DroppedText("invented_result", ends_reply=True))
        else:
            self._record.accept(replace(candidate, ends_reply=True))
        self._state = Skipping(_NOTHING)

    def _refuse_read(self, attempt: OpeningAttempt, reason: Reason, source: str) -> None:
        is_marked, is_broken = attempt.is_marked, reason is Reason.BROKEN
        # A long text that was read without a call takes as much time as several attempts.
        self._remaining_attempts -= (
            min(len(source) // bounds.READ_IN_VAIN, self._remaining_attempts) * is_marked
        )
        if is_marked and is_broken and self._record.position.is_example:
            self._record.siblings.record_example()
            self._record.refuse_example(source)
            return
        self._record.refuse(reason if is_marked else None, source)
        if is_broken:  # the next call may be part of this broken call
            self._record.siblings.record_broken(source, is_marked=is_marked)

    def _accept_or_wait(
        self, candidate: FoundCalls, *, is_doubtful: bool, is_cut: bool = False
    ) -> None:
        objection = self._record.siblings.find_objection(candidate, self._record.position.opening)
        if is_doubtful and not self._record.position.is_first:
            self._record.refuse(Reason.NOT_A_CALL, candidate.source)
        elif objection is not None:
            self._record.refuse_call(objection, candidate)
        elif len(candidate.calls) > self._record.remaining_calls:
            self._accept_allowed(candidate)
        elif is_cut:
            self._cut(candidate)
        else:
            self._state = AfterCall(candidate, is_doubtful=is_doubtful)
            if candidate.source.rstrip(" \t").endswith("\n"):  # the syntax consumed the line end
                self._accept_if_certain(self._state, is_mark_next=False)

    def _accept_allowed(self, candidate: FoundCalls) -> None:
        """Accept as many calls as the limit allows, and drop the rest of the reply."""
        if not candidate.is_marked:
            self._record.refuse(Reason.TOO_MANY_CALLS, candidate.source)
            self._remaining_attempts = _HAS_GIVEN_UP
            return
        if remaining := self._record.remaining_calls:
            self._record.accept(replace(candidate, calls=candidate.calls[:remaining]))
        self._record.report.add(DroppedText("too_many_calls"))
        self._state = Skipping(_NOTHING)

    def _source(self) -> str:
        source = self._cursor.source()
        self._cursor.release()
        return source

    # After a call.

    def _read_after_call(self, state: AfterCall) -> bool:
        space = self._cursor.skip_space()
        state.gap.append(space)
        if "\n" in space:
            self._accept_if_certain(state, is_mark_next=False)
        literal = self._cursor.literal_here(self._openings.after_call)
        rest, is_all = self._cursor.look_ahead(marks.LONGEST_CLOSER)
        closer = marks.find_closer(literal, rest, is_all=is_all)
        if literal is None or closer is None or not rest:
            return False
        if closer.rstrip() == FENCE and not self._record.position.begins_reply:
            closer = ""  # the fence may have been opened before the call
        literal = literal or closer
        if literal and not closer:
            self._accept_if_certain(state, is_mark_next=literal not in marks.SPECIAL_TOKENS)
        if literal in marks.SPECIAL_TOKENS or closer:
            self._cursor.advance(len(literal))
            state.gap.append(literal)
            self._handle_closer(state, closer)
        elif marks.ends_thoughts(literal):
            self._cursor.advance(len(literal))
            self._end_reasoning(state)
        elif (end := marks.result_end(literal)) is not None and state.pending is None:
            # Qwen2.5-Coder 0.5B invents the result of its call, and then continues the
            # conversation.
            self._cursor.advance(len(literal))
            self._record.report.add(DroppedText("invented_result"))
            self._state = Skipping(end)
        else:
            return self._end_call(state, literal)
        return True

    def _handle_closer(self, state: AfterCall, closer: str) -> None:
        """Refuse calls after reasoning if a surplus closing mark follows them (`must_end_reply`).

        The mark shows that these calls are part of a broken call, which began before the end mark
        of the reasoning (see `Siblings`).
        """
        if closer and self._record.siblings.must_end_reply:
            if state.pending is not None:
                self._record.accept(state.pending)
            self._record.add_gap("".join(state.gap))
            self._record.refuse_waiting()
            self._state = InProse()

    def _accept_if_certain(self, state: AfterCall, *, is_mark_next: bool) -> None:
        """Accept a marked call if no sentence can continue after it."""
        candidate = state.pending
        if (
            candidate
            and candidate.is_marked
            and not state.is_doubtful
            and (candidate.closed or is_mark_next)
        ):
            self._record.accept(candidate)
            state.pending, state.accepted = None, candidate

    def _end_call(self, state: AfterCall, literal: str) -> bool:
        candidate, gap = state.pending, "".join(state.gap)
        is_result = self._is_result_next(state, gap, literal)
        if is_result is None:
            return False
        if is_result:
            self._cut(candidate)
        elif candidate and candidate.is_marked and candidate.closed and not state.is_doubtful:
            return self._end_marked_call(state, candidate, gap)
        else:
            self._end_call_before_prose(state, candidate, gap, literal)
        return True

    def _end_call_before_prose(
        self, state: AfterCall, candidate: FoundCalls | None, gap: str, literal: str
    ) -> None:
        self._state = InProse()
        if candidate is None:
            self._record.surroundings.add_prose(gap)
            self._record.add_gap(gap)
        elif state.is_doubtful:
            self._record.refuse(Reason.NOT_A_CALL, candidate.source + gap)
        elif not candidate.is_marked:
            self._end_unmarked_call(candidate, gap, literal)
        else:
            self._record.refuse_call(Reason.NOT_CLOSED, candidate, gap)

    def _is_result_next(self, state: AfterCall, gap: str, literal: str) -> bool | None:
        """Return whether a result follows the model's own calls; None if more text is needed."""
        candidate = state.pending or state.accepted
        if candidate is None or state.is_doubtful or self._record.position.follows_mark:
            return False
        is_result: bool | None = marks.result_end(literal) is not None
        # A result without a mark begins on the next line, as JSON or with a label.
        is_line = "\n" in gap or candidate.source.endswith("\n")
        is_open = is_line and candidate.closed and literal.strip() in ("", FENCE, "{", "[")
        if not is_result and is_open:
            rest, is_all = self._cursor.look_ahead(LOOKAHEAD)
            is_result = candidate.syntax_name == _REACT and marks.begins_react_result(
                rest, is_all=is_all
            )
            if is_result is False:
                is_result = marks.begins_result(rest, is_all=is_all)
        return is_result and self._may_cut(candidate.source, candidate.calls)

    def _end_unmarked_call(self, candidate: FoundCalls, gap: str, literal: str) -> None:
        """Handle an unmarked call with words or another call after it.

        At the start of the reply, if a marked call may follow, the unmarked call waits until the
        marked call is accepted or refused. In all other cases the unmarked call is doubtful. It is
        refused if its tool is not offered, because unmarked JSON with another name is most likely
        data.
        """
        is_first = self._record.position.is_first and self._record.position.opening != FENCE
        may_wait = is_first and self._openings.is_any_marked(literal)
        if may_wait and self._record.siblings.offers(candidate):
            self._record.add_waiting(candidate, gap)
        else:
            may_be_meant = self._record.siblings.offers(candidate)
            refuse = self._record.report_doubtful if may_be_meant else self._record.refuse_call
            refuse(None, candidate, gap)

    def _end_marked_call(self, state: AfterCall, candidate: FoundCalls, gap: str) -> bool:
        text, is_all = self._cursor.look_ahead(LOOKAHEAD)
        is_accepted = is_separate(text, candidate.source, self._record.position, is_all=is_all)
        if is_accepted is None:
            return False
        if is_accepted:
            self._record.accept(candidate)
            state.pending = None
        else:
            self._record.report_doubtful(Reason.IN_SENTENCE, candidate, gap)
            self._state = InProse()
        return True

    def _end_reasoning(self, state: AfterCall) -> None:
        """Start over after reasoning that ended in a call."""
        if state.pending is not None:
            self._record.refuse(None, state.pending.source + "".join(state.gap))
        self._record.add_gap("".join(state.gap))
        self._record.refuse_waiting()
        self._restart()

    def _drop(self, state: Skipping) -> bool:
        end, content = state.end, state.content
        text = self._cursor.consume_until(end)
        if content is not None:
            content.append(text)
        if self._cursor.is_exhausted or not (literal := self._cursor.literal_here(end)):
            return False
        self._cursor.advance(len(literal))
        self._state = AfterCall(None)
        if content is not None:
            text = "".join(content)
            self._record.report.add(ResultText(text, f"{state.opening}{text}{literal}"))
            self._state = InProse(is_at_start=state.is_first)
        return True


def find_calls(
    text: str,
    syntaxes: Sequence[Syntax],
    offered: Collection[str],
    named: Sequence[Syntax] = (),
    *,
    cut_off: bool = False,
) -> list[Finding]:
    scanner = Scanner(syntaxes, offered, named)
    return scanner.feed(text) + scanner.finish(cut_off=cut_off)
