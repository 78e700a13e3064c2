"""Decides whether a call may be accepted after the earlier calls of the same reply.

The model expects its calls to run in order. So after a refused call that the model may have meant,
no later call is accepted. After a broken call, the text may still be part of that call:

    <tool_call>{"name": "write_note", "arguments": {"text": "He said "no" to
    <tool_call>{"name": "rm", "arguments": {"path": "/"}}</tool_call>

The quotation marks in the note are not escaped, so the call of `rm` is part of the note's text. It
must not be accepted.
"""

import re
from collections.abc import Collection
from functools import lru_cache

from proxy.conversation.tools import WrittenCall
from proxy.guardrails.names import find_name
from proxy.guardrails.rescue.findings import FoundCalls
from proxy.guardrails.rescue.marks import STRAY_CLOSERS, THOUGHT_ENDS
from proxy.guardrails.rescue.syntax import Reason

_HEAD = 300  # characters of a broken call that are searched for the name of a tool
_CLOSERS = STRAY_CLOSERS - THOUGHT_ENDS
# The text after the name of a tool in a call; in prose, other text follows the name.
_CALLED = r"""(?:["'>]|\s*[<{]|:\s*\{|\s*\(\s*(?:\{|\w+\s*=)|\s+\w+\s*=|\s+Action\ Input:)"""


class Siblings:
    """The calls of one reply so far, and the words between them.

    If the reasoning contained calls, later calls are accepted only if the rest of the reply
    consists of calls (`must_end_reply`): the apparent end of the reasoning may be part of an
    argument.
    """

    def __init__(self, offered: Collection[str], *, must_end_reply: bool = False) -> None:
        self._offered = offered
        self._objection: Reason | None = None
        self._refused_calls: tuple[WrittenCall, ...] = ()
        self._follows_unmarked = False
        self._accepted: tuple[str, str] | None = None  # syntax and opening of the last call
        self._has_prose_since_call = False
        self._after_break: list[str] = []  # the words after a broken call
        self.has_prose = False
        self.must_end_reply = must_end_reply

    @property
    def has_refusal(self) -> bool:
        return self._objection is not None or bool(self._refused_calls)

    def add_words(self, words: str) -> None:
        self.has_prose = self._has_prose_since_call = True
        if self._objection is Reason.NESTED:
            self._after_break.append(words)

    def accept(self, candidate: FoundCalls, opening: str) -> None:
        self._accepted = candidate.syntax_name, opening
        self._has_prose_since_call = self._follows_unmarked = False
        self._refused_calls = ()

    def refuse(self, reason: Reason | None, candidate: FoundCalls) -> None:
        """Record a refused call of an offered tool; ignore calls of other tools.

        If the refused call had no marks, or no closing mark, the model may repeat the same call
        with correct marks; the repetition is accepted.
        """
        self._follows_unmarked |= not candidate.is_marked
        if not self.offers(candidate):
            return
        if not candidate.is_marked or reason is Reason.NOT_CLOSED:
            self._refused_calls += candidate.calls
        else:
            self._object_to_later_calls(
                Reason.QUOTED if reason is Reason.QUOTED else Reason.OUT_OF_ORDER
            )

    def record_example(self) -> None:
        self._object_to_later_calls(Reason.QUOTED)

    def record_broken(self, source: str, *, is_marked: bool) -> None:
        """Record a broken call. An unmarked call is ignored unless it names an offered tool."""
        if is_marked or _call_pattern(frozenset(self._offered)).search(source[:_HEAD]):
            self._objection = Reason.NESTED
            self._after_break.clear()

    def find_objection(self, candidate: FoundCalls, opening: str) -> Reason | None:
        """Return why a call must not be accepted after the earlier calls; None if it may be."""
        if self._objection is not None:
            return self._objection
        if self._follows_unmarked and not candidate.is_marked:
            return Reason.OUT_OF_ORDER
        if self._refused_calls and candidate.calls != self._refused_calls:
            return Reason.OUT_OF_ORDER
        # After words, a call in a different format is an example: "In the other form it reads ...".
        is_other = self._accepted is not None and (
            candidate.syntax_name != self._accepted[0] and opening != self._accepted[1]
        )
        return Reason.QUOTED if is_other and self._has_prose_since_call else None

    def offers(self, candidate: FoundCalls) -> bool:
        return all(find_name(call.name, self._offered) for call in candidate.calls)

    def end_reasoning(self) -> "Siblings | None":
        """Return the state after the end of reasoning.

        Returns None if the end mark may be part of a broken call, because no closing mark has
        occurred since that call.
        """
        if self._objection is not Reason.NESTED:
            has_calls = self.has_refusal or self._accepted is not None
            return Siblings(self._offered, must_end_reply=self.must_end_reply or has_calls)
        text = "".join(self._after_break)
        is_over = any(closer in text for closer in _CLOSERS)
        return Siblings(self._offered, must_end_reply=True) if is_over else None

    def _object_to_later_calls(self, reason: Reason) -> None:
        if self._objection in (None, Reason.QUOTED):  # any other objection is final
            self._objection = reason


@lru_cache(maxsize=64)
def _call_pattern(names: frozenset[str]) -> re.Pattern[str]:
    known = "|".join(map(re.escape, sorted(names)))
    return re.compile(rf"(?<![\w.-])(?:{known}){_CALLED}" if known else "(?!)", re.VERBOSE)
