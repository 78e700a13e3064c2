"""Records the scanner's decisions about calls and prose, and reports them as findings.

`Record` also stores the state that later decisions depend on: the calls that wait for the decision
about the next call, the position of the last opening, and the calls refused so far.
"""

from collections.abc import Callable, Collection

from msgspec.structs import replace

from proxy.guardrails.rescue.findings import (
    EarlierReasoning,
    Finding,
    FoundCalls,
    Gap,
    Prose,
    RefusedText,
)
from proxy.guardrails.rescue.formats import Anchor
from proxy.guardrails.rescue.position import Position
from proxy.guardrails.rescue.siblings import Siblings
from proxy.guardrails.rescue.surroundings import Surroundings
from proxy.guardrails.rescue.syntax import MOST_CALLS, Reason

_SPACE = " \t\r\n"


class Report:
    """Collects findings: joins pieces of prose, and holds back the white space after them.

    If a call follows, the held white space and leaked control tokens, such as `<|im_end|>`, become
    the `lead` of the call and are not shown. Otherwise the held text is part of the prose.
    """

    def __init__(self) -> None:
        self._held: list[str] = []
        self._prose: list[str] = []
        self._findings: list[Finding] = []

    def add_prose(self, text: str) -> tuple[str, str]:
        """Report prose, and hold the white space at its end; return these two parts."""
        body = text.rstrip(_SPACE)
        space = text[len(body) :]
        if body:
            self._prose += [*self._held, body]
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
        """Return and remove the held text if it is only white space."""
        return "" if "".join(self._held).strip(_SPACE) else self.take_held()

    def flush_held(self) -> None:
        self._prose += self._held
        self._held.clear()

    def add(self, finding: Finding) -> None:
        self.flush()
        self._findings.append(finding)

    def flush(self) -> None:
        if self._prose:
            self._findings.append(Prose("".join(self._prose)))
            self._prose.clear()

    def take(self) -> list[Finding]:
        self.flush()
        findings, self._findings = self._findings, []
        return findings


class Record:
    """The decisions about a reply; `position` is the position of the last opening."""

    def __init__(self, offered: Collection[str]) -> None:
        self.surroundings = Surroundings()
        self.siblings = Siblings(offered)
        self.position = Position()
        self.remaining_calls = MOST_CALLS
        self.report = Report()
        self._waiting: list[tuple[FoundCalls, str]] = []  # each waiting call with the gap after it

    @property
    def is_doubtful(self) -> bool:
        """Whether the current call will probably be refused, or has to wait for another call."""
        return self.position.is_example or self.siblings.has_refusal or bool(self._waiting)

    def anchors(self, *, is_first: bool) -> set[Anchor]:
        anchors: set[Anchor] = {"anywhere"}
        if is_first:
            anchors.add("reply_start")
        if self.surroundings.is_line_start:
            anchors.add("line_start")
        return anchors

    def begin(self, opening: str, *, is_first: bool) -> None:
        begins_reply = not (self.siblings.has_prose or self._waiting)
        self.position = self.surroundings.position_of(
            opening, is_first=is_first, begins_reply=begins_reply
        )

    def restart(self) -> None:
        """Start over after the end of reasoning.

        If the end mark may be part of a broken call, `siblings` keeps its state and refuses later
        calls.
        """
        self.refuse_waiting()
        self.report.flush_held()  # white space before the mark is part of the reasoning
        siblings = self.siblings.end_reasoning()
        self.siblings = siblings or self.siblings
        self.surroundings = Surroundings()
        self.report.add(EarlierReasoning(is_over=siblings is not None))

    # Calls.

    def accept(self, candidate: FoundCalls) -> None:
        """Accept a call and the calls that waited for the decision about this call."""
        # A model may write a call in plain JSON, and then repeat the same call between marks. In
        # this case the call in plain JSON is text.
        plain = [waiting for waiting, _ in self._waiting if not waiting.is_marked]
        if plain and plain[0].calls == candidate.calls:
            self.refuse_waiting()
        self.siblings.accept(candidate, self.position.opening)
        self.add_waiting(candidate)
        if not self.siblings.must_end_reply:
            self.report_waiting()

    def find_objection_at_end(self, candidate: FoundCalls, *, cut_off: bool) -> Reason | None:
        """Return why a call at the end of the reply is refused; None if it is accepted."""
        if cut_off and not (candidate.is_marked and candidate.closed):
            return Reason.CUT_OFF
        is_offered = candidate.is_marked or self.siblings.offers(candidate)
        return None if is_offered else Reason.NOT_OFFERED

    def add_waiting(self, candidate: FoundCalls, gap: str = "") -> None:
        """Store a call until the next call is accepted or refused."""
        self._waiting.append((candidate, gap))
        self.surroundings.add_call()

    def add_gap(self, gap: str) -> None:
        if self._waiting:
            last, before = self._waiting[-1]
            self._waiting[-1] = last, before + gap
        elif gap:
            self.report.add(Gap(gap))

    def report_waiting(self) -> None:
        """Report the waiting calls as accepted."""
        for candidate, gap in self._waiting:
            lead = self.report.take_held()
            self.remaining_calls -= len(candidate.calls)
            self.report.add(replace(candidate, lead=lead))
            if gap:
                self.report.add(Gap(gap))
        self._waiting.clear()

    def refuse_waiting(self) -> None:
        """Treat the waiting calls as prose."""
        waiting, self._waiting = self._waiting, []
        reason = Reason.NESTED if self.siblings.must_end_reply else Reason.IN_SENTENCE
        for candidate, gap in waiting:
            self.refuse_call(reason, candidate, gap)

    def refuse_call(self, reason: Reason | None, candidate: FoundCalls, gap: str = "") -> None:
        """Treat a call as prose, and store it in `siblings`, which may refuse later calls.

        The reason is reported only for a marked call.
        """
        self.refuse(reason if candidate.is_marked else None, candidate.source + gap)
        self.siblings.refuse(reason, candidate)

    def report_doubtful(self, reason: Reason | None, candidate: FoundCalls, gap: str) -> None:
        """Report a doubtful call; `guardrails.reading` decides whether it is a call or prose."""
        self.refuse_waiting()
        if reason is not None:
            self.report.add(RefusedText(reason))
        self.siblings.refuse(reason, candidate)
        self.siblings.add_words(candidate.source)
        self.report.flush_held()
        body = candidate.source.rstrip(_SPACE)
        self.report.add(replace(candidate, source=body, is_doubtful=True))
        self.surroundings.add_prose(body)
        self.add_prose(candidate.source[len(body) :] + gap)

    # Prose.

    def refuse(
        self, reason: Reason | None, text: str, track: Callable[[str], None] | None = None
    ) -> None:
        """Treat `text` as prose; report the reason unless it is None."""
        self.refuse_waiting()
        if reason is not None:
            self.report.add(RefusedText(reason))
        self.add_prose(text, track)
        self.report.flush()

    def refuse_example(self, source: str) -> None:
        """Treat a call as prose because the words before it introduce an example."""
        self.refuse(Reason.QUOTED, source, self.surroundings.add_example)

    def add_prose(self, text: str, track: Callable[[str], None] | None = None) -> None:
        """Report prose and hold the white space at its end; `track` updates the surroundings."""
        if text.strip(_SPACE):
            self.refuse_waiting()
            self.siblings.add_words(text)
        body, space = self.report.add_prose(text)
        (track or self.surroundings.add_prose)(body)
        if space:
            self.surroundings.add_prose(space)

    def take_space(self) -> str:
        """Return the held white space after prose; "" if a call still waits for a decision."""
        return "" if self._waiting else self.report.take_space()

    def end(self) -> list[Finding]:
        self.report_waiting()
        self.report.flush_held()
        return self.report.take()
