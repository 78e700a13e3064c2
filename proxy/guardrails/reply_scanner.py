"""Divides the text of a reply into reasoning, labeled parts, prose and calls, while it arrives.

The text passes through three stages: `reasoning` separates marked blocks, `labels` separates
labeled lines if the prompt demands labels, and the scanner of `rescue` finds calls. Then stray
marks are removed, and missing names of arguments are added.
"""

import re
from collections.abc import Iterable, Sequence
from functools import cached_property, partial
from itertools import chain
from typing import TypeAlias

from msgspec.structs import replace

from proxy.conversation.replies import ReasoningDelta, TextDelta
from proxy.conversation.tools import WrittenCall
from proxy.guardrails.call_facts import asks_about_calls, find_shown_tool
from proxy.guardrails.labels import FinalAnswer, InventedResult, LabeledPart, LabelSplitter
from proxy.guardrails.offer import OfferedTools
from proxy.guardrails.reasoning import AddressedText, ReasoningSplitter, SplitPart
from proxy.guardrails.rescue import unnamed
from proxy.guardrails.rescue.copies import EarlierTexts
from proxy.guardrails.rescue.findings import Finding, FoundCalls, Prose, RefusedText
from proxy.guardrails.rescue.marks import begins_plain_call
from proxy.guardrails.rescue.provenance import Origin
from proxy.guardrails.rescue.scanner import Scanner, find_calls
from proxy.guardrails.rescue.stray import StrayMarks, remove_lone_marks
from proxy.guardrails.rescue.syntax import Reason, Syntax
from proxy.guardrails.rescue.syntaxes.envelope import calls_in
from proxy.guardrails.rescue.syntaxes.tool_names import syntaxes_for
from proxy.guardrails.rescue.values.reader import read_values
from proxy.guardrails.respond import UNOFFERED

_BRACKET = re.compile(r"[\[{]")
ScannedPart: TypeAlias = ReasoningDelta | AddressedText | FinalAnswer | InventedResult | Finding


class ReplyScanner:
    """Scans the text of one reply."""

    def __init__(self, offer: OfferedTools) -> None:
        self._offer = offer
        self._splitter = ReasoningSplitter(
            offer.opens_thoughts, offer.quotable + offer.instructions
        )
        self._labels = LabelSplitter() if offer.has_labels else None
        # created with the first text, because many replies consist of structured calls only
        self._scanner: Scanner | None = None
        # A partial object, because a bound method would create a reference cycle. The cycle would
        # keep the request in memory until the next garbage collection.
        self._is_in_prompt = partial(_is_in_any, offer.quotable)
        self._stray_marks = StrayMarks(self._is_in_prompt)

    def feed(self, text: str) -> list[ScannedPart]:
        return self._scan(self._splitter.feed(text))

    def settle(self) -> list[ScannedPart]:
        """Decide whether held text is reasoning. The caller must know that no text follows."""
        return self._scan(self._splitter.settle())

    def flush(self) -> list[ScannedPart]:
        """End the stages before the scanner of calls; `finish` ends the scanner."""
        parts = self._scan(self._splitter.finish())
        return parts + (self._scan_labeled(self._labels.finish()) if self._labels else [])

    def finish(self, *, is_cut_off: bool, has_structured_calls: bool) -> list[Finding]:
        if self._scanner is None:
            return []
        last = self._complete(self._scanner.finish(cut_off=is_cut_off), is_last=True)
        self._scanner = None  # ends the reference cycle: the scanner refers to `self._may_cut`
        return remove_lone_marks(last, self._is_in_prompt) if has_structured_calls else last

    def close(self) -> None:
        """Discard the text that is held back because it may be reasoning."""
        self._splitter = ReasoningSplitter()

    def note_reasoning(self) -> None:
        """Expect no more reasoning in the text, because the backend separates reasoning."""
        self._splitter.is_opened = False

    @property
    def has_closed_reasoning(self) -> bool:
        """Whether the reply closed a reasoning block that its prompt had opened."""
        return self._splitter.has_ended

    @property
    def has_leak(self) -> bool:
        """Whether the text has the end of a call without its beginning."""
        return self._stray_marks.has_leak

    def take_space(self) -> str:
        """Return the white space held back before a structured call."""
        space = self._splitter.take_space()
        return space if self._scanner is None else space + self._scanner.take_space()

    def find_calls(self, text: str) -> list[Finding]:
        """Scan a separate text, such as the reasoning, from its beginning to its end."""
        offer = self._offer
        return find_calls(text, offer.readable_syntaxes, offer.written_names, self._tool_syntaxes)

    def begins_with_call(self, text: str) -> bool:
        """Return whether a text that was cut off begins with a mark or with a plain call."""
        syntaxes = (*self._offer.syntaxes, *self._tool_syntaxes)
        openings = (syntax.openings for syntax in syntaxes if syntax.is_marked)
        is_marked = text.lstrip().startswith(tuple(chain.from_iterable(openings)))
        return is_marked or begins_plain_call(text, self._offer.written_names)

    def find_complete_calls(self, text: str) -> FoundCalls | None:
        """Find the plain calls before a call that was cut off."""
        start = _BRACKET.search(text)
        values = read_values(text[start.start() :], is_complete=False) if start else []
        calls = tuple(call for value in values for call in calls_in(value, is_marked=False))
        if not calls or not self._may_cut(text, calls):
            return None
        return FoundCalls("bare_json", calls, text, is_marked=False, closed=True)

    def _scan(self, pieces: Iterable[SplitPart]) -> list[ScannedPart]:
        parts: list[ScannedPart] = []
        for piece in pieces:
            if isinstance(piece, ReasoningDelta | AddressedText):
                parts.append(piece)
            elif self._labels is None:
                parts += self._find(piece.text)
            else:
                parts += self._scan_labeled(self._labels.feed(piece.text))
        return parts

    def _scan_labeled(self, pieces: Iterable[LabeledPart]) -> list[ScannedPart]:
        parts: list[ScannedPart] = []
        for piece in pieces:
            match piece:
                case FinalAnswer() if self._offer.respond is not None:
                    parts.append(piece)
                case FinalAnswer(text) | TextDelta(text):
                    parts += self._find(text)
                case _:
                    parts.append(piece)
        return parts

    def _find(self, text: str) -> list[Finding]:
        if self._scanner is None:
            is_in_prompt = self._is_in_prompt
            self._scanner = Scanner(
                self._offer.readable_syntaxes,
                self._offer.written_names,
                self._tool_syntaxes,
                may_cut=self._may_cut,
                may_hide=lambda mark: not is_in_prompt(mark),
            )
            if self._offer.executed:
                self._scanner.follow_results()
        return self._complete(self._scanner.feed(text))

    def _complete(self, findings: list[Finding], *, is_last: bool = False) -> list[Finding]:
        """Remove stray marks, and add the missing names of arguments.

        A call is refused as broken if its arguments without a name fit no tool.
        """
        completed: list[Finding] = []
        for finding in self._stray_marks.filter(findings, is_last=is_last):
            if not isinstance(finding, FoundCalls):
                completed.append(finding)
                continue
            calls = [unnamed.complete(call, self._offer.everything) for call in finding.calls]
            if None in calls:
                completed += (RefusedText(Reason.BROKEN), Prose(finding.source))
            else:
                completed.append(replace(finding, calls=tuple(filter(None, calls))))
        return completed

    def _may_cut(self, source: str, calls: Sequence[WrittenCall]) -> bool:
        """Return whether the model meant these calls.

        If it did, a result after the calls is invented, and the scanner may drop the result and the
        text after it.
        """
        offer = self._offer
        if not all(find_shown_tool(call, offer) for call in calls):
            return False
        if self.earlier.find_origin(source, calls) is not Origin.MODEL:
            return False
        return not asks_about_calls(calls, offer)

    @cached_property
    def earlier(self) -> EarlierTexts:
        """The texts of users and tools, from which the model may copy a call."""
        return EarlierTexts(self._offer.user_texts, self._offer.results)

    @cached_property
    def _tool_syntaxes(self) -> tuple[Syntax, ...]:
        """The syntaxes whose openings contain names of tools.

        They are disabled if the answer has to be JSON, because members of the answer may be named
        like tools.
        """
        offer = self._offer
        if offer.answer_schema is not None or not offer.rescues:
            return ()
        answers = (tool for tool in UNOFFERED if offer.may_be_answer(tool.name))
        return syntaxes_for((*offer.everything, *answers))


def _is_in_any(texts: Sequence[str], mark: str) -> bool:
    return any(mark in text for text in texts)
