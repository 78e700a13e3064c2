"""Keep calls and prose apart in a reply while it arrives, and enforce whose words a call is.

Theory of operation. One pass over a `Cursor`, in four modes:

LISTENING  prose, up to the next opening. White space, control tokens and what may be the beginning
           of an opening are held back until it is known whether a call follows.
READING    behind an opening, the syntaxes that share it read. Refused text is prose and is not
           searched again: that keeps the work linear.
BEHIND     behind a call. What follows decides whether it was one: a marked call must not stand
           within a sentence unless it began with a control token, one without closing mark must
           be followed by another or by the end, an unmarked one must be the end of the reply and
           name offered tools only. What was announced as an example never was one.
DROPPING   inside a result that the model invented after its own call.

Behind the mark that ends thoughts, a reply begins anew: the prompt had begun the thoughts.
What is decided depends on the text alone, never on the pieces in which it arrives.
"""

from collections.abc import Callable, Collection, Sequence

from msgspec.structs import replace

from proxy.guardrails.names import meant_by
from proxy.guardrails.rescue.attempt import Attempt
from proxy.guardrails.rescue.cursor import Cursor
from proxy.guardrails.rescue.findings import Dropped, Finding, Found, Prose, Refused, Thought
from proxy.guardrails.rescue.literals import Literals
from proxy.guardrails.rescue.modes import Behind, Dropping, Listening, Mode
from proxy.guardrails.rescue.openings import (
    CONTROL_BEGINNINGS,
    INVENTED_RESULTS,
    LONGEST_CLOSER,
    SPECIAL_TOKENS,
    THOUGHT_ENDS,
    closer_in,
    openings_of,
)
from proxy.guardrails.rescue.surroundings import CLOSING_QUOTES, Surroundings
from proxy.guardrails.rescue.syntax import MOST_CALLS, NotACall, Place, Reason, Syntax

_SPACE = " \t\r\n"
# Text that holds more openings and control tokens than this is noise: it is searched no further.
# So much text that was read in vain is as tiring as one of them.
_PATIENCE = 500
_TIRING = 1_024
_GAVE_UP = -1
_NOTHING = Literals(())


class Scanner:
    """Finds the calls in one reply.

    `named` are syntaxes whose openings are made of the offered names.
    """

    def __init__(
        self, syntaxes: Sequence[Syntax], offered: Collection[str], named: Sequence[Syntax] = ()
    ) -> None:
        self._openings = openings_of(tuple(syntaxes), tuple(named))
        self._offered = frozenset(offered)
        self._cursor = Cursor()
        self._surroundings = Surroundings()
        self._state: Mode = Listening(is_untouched=True)
        self._patience = _PATIENCE
        self._room = MOST_CALLS
        self._is_example = False
        self._has_refused_row = False
        self._may_go_on = False
        self._is_apart = False
        self._held: list[str] = []
        self._spoken: list[str] = []
        self._findings: list[Finding] = []

    def feed(self, text: str) -> list[Finding]:
        """Take text that has arrived and return what has become certain."""
        self._cursor.feed(text)
        while self._step():
            pass
        return self._report()

    def finish(self, *, cut_off: bool = False) -> list[Finding]:
        """Take note of the reply's end and return the rest; `cut_off` if more was to come."""
        self._cursor.finish()
        breaks_off = cut_off and isinstance(self._state, Attempt)
        while not breaks_off and self._step():
            pass
        match self._state:
            case Attempt():
                self._cursor.pass_rest()
                self._refuse(Reason.CUT_OFF, self._source())
            case Behind(Found() as found, gap):
                reason = self._objection(found, cut_off=cut_off)
                if reason:
                    self._refuse(reason, found.source + "".join(gap))
                else:
                    self._accept(found)
            case _:
                pass
        self._spoken += self._held
        self._held.clear()
        return self._report()

    def _step(self) -> bool:
        """Go on by one decision; False where that needs more text."""
        state = self._state
        if isinstance(state, Listening):
            return self._listen(state)
        if isinstance(state, Attempt):
            return self._read(state)
        if isinstance(state, Behind):
            return self._look_behind(state)
        return self._drop(state.end)

    def _listen(self, state: Listening) -> bool:
        if self._patience <= 0:
            return self._give_up()
        if state.is_untouched:
            literals = self._openings.first
            self._say(self._cursor.pass_space())
        else:
            literals = self._openings.in_prose
            self._say(self._cursor.pass_until(literals))
        literal = self._cursor.here(literals)
        if literal is None or self._cursor.is_exhausted:
            return False
        self._patience -= 1
        if literal in SPECIAL_TOKENS:
            self._cursor.advance(len(literal))
            self._held.append(literal)  # leaked, and so not part of the line
        elif literal in THOUGHT_ENDS:
            self._cursor.advance(len(literal))
            self._say(literal)
            state.is_untouched = self._end_thoughts()
        else:
            is_first, state.is_untouched = state.is_untouched, False
            self._meet(literal, is_first=is_first)
        return True

    def _give_up(self) -> bool:
        """Let everything be prose from here on."""
        if self._patience == 0 and not self._cursor.is_exhausted:
            self._patience = _GAVE_UP
            self._emit(Refused(Reason.TOO_MANY_OPENINGS))
        self._spoken += [*self._held, self._cursor.pass_until(_NOTHING)]
        self._held.clear()
        return False

    def _end_thoughts(self) -> bool:
        """Begin anew behind the end of thoughts; tell whether it was one and not a quotation."""
        if self._surroundings.is_quotation:
            return False
        self._begin_anew()
        return True

    def _begin_anew(self) -> None:
        self._surroundings = Surroundings()
        self._has_refused_row = False
        self._emit(Thought())

    def _meet(self, literal: str, *, is_first: bool) -> None:
        """Decide whether a call may begin where `literal` stands."""
        places = {Place.ANYWHERE}
        if is_first:
            places.add(Place.REPLY_START)
        if self._surroundings.is_line_start:
            places.add(Place.LINE_START)
        candidates = [
            (opening, syntax)
            for opening, syntax in self._openings.that_fit(literal)
            if syntax.place in places
        ]
        if candidates and not self._is_quoted(literal):
            self._is_example = self._surroundings.is_example
            self._may_go_on = self._surroundings.is_sentence_start
            self._is_apart = self._surroundings.is_apart or literal[0].isspace()
            self._state = Attempt(self._cursor, candidates, self._offered)
            return
        if literal.startswith("\n"):
            literal = "\n"  # the next line is judged by itself
        self._cursor.advance(len(literal))
        if any(syntax.is_marked for _, syntax in candidates):
            self._emit(Refused(Reason.QUOTED))
            self._say(literal, self._surroundings.pass_quoted)
        else:
            self._say(literal)

    def _is_quoted(self, literal: str) -> bool:
        if literal.startswith("\n"):
            return self._surroundings.is_next_line_quoted
        return self._surroundings.is_quotation

    def _read(self, attempt: Attempt) -> bool:
        outcome = attempt.resume()
        heard = attempt.take_heard()
        if not self._is_example:
            for finding in heard:
                self._emit(finding)
        if outcome is None:
            return False
        source = self._source()
        syntax = attempt.syntax
        if isinstance(outcome, NotACall):
            self._patience -= min(len(source) // _TIRING, self._patience) * attempt.is_marked
            self._refuse(outcome.reason if attempt.is_marked else None, source)
        elif self._is_example:
            self._refuse_example(source)
        else:
            self._take(Found(syntax.name, outcome.calls, source, syntax.is_marked, outcome.closed))
        return True

    def _take(self, found: Found) -> None:
        """Decide about calls as far as what stands before them can tell."""
        if len(found.calls) > self._room:
            self._end_with(found)
        elif self._has_refused_row and not found.is_marked:
            self._refuse_row(found.source)
        else:
            self._state = Behind(found)
            if found.source.rstrip(" \t").endswith("\n"):  # the reading took it for its own
                self._certify(self._state, is_mark_next=False)

    def _end_with(self, found: Found) -> None:
        """Take as many of too many calls as there may be, and read nothing else."""
        if not found.is_marked:
            self._refuse(Reason.TOO_MANY_CALLS, found.source)
            self._patience = _GAVE_UP
            return
        if self._room:
            self._accept(replace(found, calls=found.calls[: self._room]))
        self._emit(Dropped("too_many_calls"))
        self._state = Dropping(_NOTHING)

    def _source(self) -> str:
        source = self._cursor.source()
        self._cursor.release()
        return source

    def _look_behind(self, state: Behind) -> bool:
        space = self._cursor.pass_space()
        state.gap.append(space)
        if "\n" in space:
            self._certify(state, is_mark_next=False)
        literal = self._cursor.here(self._openings.behind_call)
        if literal is None or self._cursor.is_exhausted:
            return False
        closer = closer_in(literal, self._cursor.glimpse(LONGEST_CLOSER)[0])
        closer = "" if literal in THOUGHT_ENDS else closer
        literal = literal or closer
        if literal and not closer:
            self._certify(state, is_mark_next=literal not in SPECIAL_TOKENS)
        if literal in SPECIAL_TOKENS or closer:
            self._cursor.advance(len(literal))
            state.gap.append(literal)
        elif literal in THOUGHT_ENDS:
            self._cursor.advance(len(literal))
            self._end_behind(state)
        elif literal in INVENTED_RESULTS and state.pending is None:
            self._cursor.advance(len(literal))
            self._emit(Dropped("invented_result"))
            self._state = Dropping(INVENTED_RESULTS[literal])
        else:
            self._leave(state)
        return True

    def _certify(self, state: Behind, *, is_mark_next: bool) -> None:
        """Accept a marked call that no sentence goes on behind."""
        found = state.pending
        if found and found.is_marked and (found.closed or is_mark_next):
            self._accept(found)
            state.pending = None

    def _leave(self, state: Behind) -> None:
        """Go on behind a call with what is prose or another opening."""
        gap = "".join(state.gap)
        found = state.pending
        if found is None:
            self._surroundings.pass_prose(gap)
            self._state = Listening()
        elif found.closed and self._is_beyond_doubt(found):
            self._accept(found)
            state.pending = None
        elif found.is_marked:
            reason = Reason.IN_SENTENCE if found.closed else Reason.NOT_CLOSED
            self._refuse(reason, found.source + gap)
        else:
            self._refuse_row(found.source + gap)

    def _end_behind(self, state: Behind) -> None:
        """Go on behind the end of thoughts in which a call was the last thing."""
        if state.pending is not None:
            self._refuse(None, state.pending.source + "".join(state.gap))
        self._begin_anew()
        self._state = Listening(is_untouched=True)

    def _is_beyond_doubt(self, found: Found) -> bool:
        """Tell whether a sentence may follow on the same line.

        Where one sentence ended before the call and another begins behind it, the call stands in
        neither. Control tokens are not written in passing, unless words go on around them.
        """
        following, _ = self._cursor.glimpse(1)
        is_sentence = following.isalpha() and not following.islower()
        if found.source.startswith(CONTROL_BEGINNINGS):
            is_in_words = self._is_apart and not self._may_go_on and not is_sentence
            return following not in CLOSING_QUOTES and not is_in_words
        return found.is_marked and self._may_go_on and is_sentence

    def _drop(self, end: Literals) -> bool:
        self._cursor.pass_until(end)
        if self._cursor.is_exhausted or not (literal := self._cursor.here(end)):
            return False
        self._cursor.advance(len(literal))
        self._state = Behind(None)
        return True

    def _objection(self, found: Found, *, cut_off: bool) -> Reason | None:
        """Tell what forbids a call at the end of the reply."""
        if cut_off and not (found.is_marked and found.closed):
            return Reason.CUT_OFF
        names = (meant_by(call.name, self._offered) for call in found.calls)
        return Reason.NOT_OFFERED if not found.is_marked and None in names else None

    def _accept(self, found: Found) -> None:
        self._held.clear()
        self._room -= len(found.calls)
        self._emit(found)
        self._surroundings.pass_call()

    def _refuse(self, reason: Reason | None, text: str) -> None:
        """Let `text` be prose; without a reason nobody needs to know that it was looked at."""
        if reason is not None:
            self._emit(Refused(reason))
        self._state = Listening()
        self._say(text)
        self._flush()

    def _refuse_row(self, text: str) -> None:
        """Let an unmarked call be prose that something follows, and all those behind it.

        A plan of several steps, each told and then written down, must not lose the first ones.
        """
        self._refuse(None, text)
        self._has_refused_row = True

    def _refuse_example(self, text: str) -> None:
        self._emit(Refused(Reason.QUOTED))
        self._state = Listening()
        self._say(text, self._surroundings.pass_example)
        self._flush()

    def _say(self, text: str, take_note: Callable[[str], None] | None = None) -> None:
        """Report prose, but hold the white space at its end."""
        body = text.rstrip(_SPACE)
        if body:
            self._spoken += [*self._held, body]
            self._held.clear()
        (take_note or self._surroundings.pass_prose)(body)
        self._hold(text[len(body) :])

    def _hold(self, text: str) -> None:
        if text:
            self._held.append(text)
            self._surroundings.pass_prose(text)

    def _emit(self, finding: Finding) -> None:
        self._flush()
        self._findings.append(finding)

    def _flush(self) -> None:
        if self._spoken:
            self._findings.append(Prose("".join(self._spoken)))
            self._spoken.clear()

    def _report(self) -> list[Finding]:
        self._flush()
        findings, self._findings = self._findings, []
        return findings


def find_calls(
    text: str,
    syntaxes: Sequence[Syntax],
    offered: Collection[str],
    named: Sequence[Syntax] = (),
    *,
    cut_off: bool = False,
) -> list[Finding]:
    """Scan a whole reply at once."""
    scanner = Scanner(syntaxes, offered, named)
    return scanner.feed(text) + scanner.finish(cut_off=cut_off)
