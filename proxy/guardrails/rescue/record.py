"""Records, in order, what the scanner has decided about calls and prose, as findings.

It also remembers what each decision means for later calls: a call that waits for the next one, the
words before an opening, and the calls refused so far.
"""

from collections.abc import Callable, Collection

from msgspec.structs import replace

from proxy.guardrails.rescue.findings import (
    EarlierThoughts,
    Finding,
    FoundCalls,
    Gap,
    Prose,
    RefusedText,
)
from proxy.guardrails.rescue.formats import Place
from proxy.guardrails.rescue.modes import Beginning, JoinedCall
from proxy.guardrails.rescue.neighbours import Siblings
from proxy.guardrails.rescue.surroundings import Surroundings
from proxy.guardrails.rescue.syntax import MOST_CALLS, Reason

_SPACE = " \t\r\n"


class Report:
    """Findings, with prose joined and the white space after it held back.

    White space and leaked control tokens are part of the prose only if prose follows them.
    """

    def __init__(self) -> None:
        self._held: list[str] = []
        self._spoken: list[str] = []
        self._findings: list[Finding] = []

    def say(self, text: str) -> tuple[str, str]:
        """Report prose without the white space at its end; return the two parts."""
        body = text.rstrip(_SPACE)
        space = text[len(body) :]
        if body:
            self._spoken += [*self._held, body]
            self._held.clear()
        self.hold(space)
        return body, space

    def hold(self, text: str) -> None:
        if text:
            self._held.append(text)

    def take_held(self) -> str:
        held = "".join(self._held)
        self._held.clear()
        return held

    def take_space(self) -> str:
        """Return and release what is held back, if it is only white space."""
        held = "".join(self._held)
        if held.strip(_SPACE):
            return ""
        self._held.clear()
        return held

    def keep_held(self) -> None:
        self._spoken += self._held
        self._held.clear()

    def add(self, finding: Finding) -> None:
        self.flush()
        self._findings.append(finding)

    def flush(self) -> None:
        if self._spoken:
            self._findings.append(Prose("".join(self._spoken)))
            self._spoken.clear()

    def take(self) -> list[Finding]:
        self.flush()
        findings, self._findings = self._findings, []
        return findings


class Record:
    """The decisions about one reply; `beginning` is the place of the last opening."""

    def __init__(self, offered: Collection[str]) -> None:
        self.surroundings = Surroundings()
        self.siblings = Siblings(offered)
        self.beginning = Beginning()
        self.room = MOST_CALLS
        self.report = Report()
        self._row: list[JoinedCall] = []

    @property
    def is_doubtful(self) -> bool:
        """Whether the current reading will hardly count, or only after others do."""
        return self.beginning.is_example or self.siblings.is_settled or bool(self._row)

    def places(self, *, is_first: bool) -> set[Place]:
        found: set[Place] = {"anywhere"}
        if is_first:
            found.add("reply_start")
        if self.surroundings.is_line_start:
            found.add("line_start")
        return found

    def begin(self, literal: str, *, is_first: bool) -> None:
        around = self.surroundings
        self.beginning = Beginning(
            literal,
            is_first=is_first,
            begins_reply=not (self.siblings.has_spoken or self._row),
            words=around.last_words,
            is_sentence_start=around.is_sentence_start,
            is_apart=around.is_apart or literal[0].isspace(),
            within=() if is_first else around.find_layout(literal),
        )

    def restart(self) -> None:
        """Start over after the end of thoughts, unless it may belong to a broken call."""
        self.drop()
        self.report.keep_held()  # it stands before the mark
        siblings = self.siblings.end_thoughts()
        self.siblings = siblings or self.siblings
        self.surroundings = Surroundings()
        self.report.add(EarlierThoughts(is_over=siblings is not None))

    # Calls.

    def accept(self, found: FoundCalls) -> None:
        """Accept a call, and those that waited for it, except plain ones that it repeats."""
        waits = [one.found for one in self._row if not one.found.is_marked]
        if waits and waits[0].calls == found.calls:
            self.drop()
        self.siblings.accept(found, self.beginning.opening)
        self.join(found)
        if not self.siblings.must_end_reply:
            self.release()

    def object_at_end(self, found: FoundCalls, *, cut_off: bool) -> Reason | None:
        """Return what forbids a call at the end of the reply."""
        if cut_off and not (found.is_marked and found.closed):
            return Reason.CUT_OFF
        is_offered = found.is_marked or self.siblings.offers(found)
        return None if is_offered else Reason.NOT_OFFERED

    def join(self, found: FoundCalls, gap: str = "") -> None:
        """Let a call wait for the fate of the next one."""
        self._row.append(JoinedCall(found, gap))
        self.surroundings.pass_call()

    def widen_gap(self, gap: str) -> None:
        if self._row:
            self._row[-1].gap += gap
        elif gap:
            self.report.add(Gap(gap))

    def release(self) -> None:
        for one in self._row:
            lead = self.report.take_held()
            self.room -= len(one.found.calls)
            self.report.add(replace(one.found, lead=lead))
            if one.gap:
                self.report.add(Gap(one.gap))
        self._row.clear()

    def drop(self) -> None:
        row, self._row = self._row, []
        reason = Reason.NESTED if self.siblings.must_end_reply else Reason.IN_SENTENCE
        for one in row:
            self.refuse_call(reason, one.found, one.gap)

    def refuse_call(self, reason: Reason | None, found: FoundCalls, gap: str = "") -> None:
        """Treat a call as prose, silently if unmarked; those after it will not count alone."""
        self.refuse(reason if found.is_marked else None, found.source + gap)
        self.siblings.refuse(reason, found)

    def doubt(self, reason: Reason | None, found: FoundCalls, gap: str) -> None:
        """Treat a call as prose, unless the reader of the reply finds that it may be meant."""
        self.drop()
        if reason is not None:
            self.report.add(RefusedText(reason))
        self.siblings.refuse(reason, found)
        self.siblings.hear(found.source)
        self.report.keep_held()
        body = found.source.rstrip(_SPACE)
        self.report.add(replace(found, source=body, is_doubtful=True))
        self.surroundings.pass_prose(body)
        self.say(found.source[len(body) :] + gap)

    # Prose.

    def refuse(
        self, reason: Reason | None, text: str, take_note: Callable[[str], None] | None = None
    ) -> None:
        """Treat `text` as prose, with a reason if there is one."""
        self.drop()
        if reason is not None:
            self.report.add(RefusedText(reason))
        self.say(text, take_note)
        self.report.flush()

    def show(self, source: str) -> None:
        self.refuse(Reason.QUOTED, source, self.surroundings.pass_example)

    def say(self, text: str, take_note: Callable[[str], None] | None = None) -> None:
        """Report prose, but hold the white space at its end."""
        if text.strip(_SPACE):
            self.drop()
            self.siblings.hear(text)
        body, space = self.report.say(text)
        (take_note or self.surroundings.pass_prose)(body)
        if space:
            self.surroundings.pass_prose(space)

    def take_space(self) -> str:
        """Return the white space after prose, unless a call waits for what follows it."""
        return "" if self._row else self.report.take_space()

    def end(self) -> list[Finding]:
        self.release()
        self.report.keep_held()
        return self.report.take()
