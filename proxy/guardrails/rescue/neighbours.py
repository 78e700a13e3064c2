"""What a reply's earlier calls, and the words after a call on its line, mean for the call.

The model intends its calls to run in order. So after an intended call that could not be accepted,
no later call is accepted alone. After a call that broke, what follows may still belong to it.
"""

import re
from collections.abc import Collection
from functools import lru_cache

from proxy.conversation.tools import WrittenCall
from proxy.guardrails.names import find_name
from proxy.guardrails.rescue.findings import FoundCalls
from proxy.guardrails.rescue.marks import CONTROL_BEGINNINGS, STRAY_CLOSERS, THOUGHT_ENDS
from proxy.guardrails.rescue.modes import Beginning
from proxy.guardrails.rescue.surroundings import CLOSING_QUOTES
from proxy.guardrails.rescue.syntax import Reason

_HEAD = 300
_CLOSERS = STRAY_CLOSERS - THOUGHT_ENDS
# What follows the name of a tool that is called and not only mentioned.
_CALLED = r"""(?:["'>]|\s*[<{]|:\s*\{|\s*\(\s*(?:\{|\w+\s*=)|\s+\w+\s*=|\s+Action\ Input:)"""


class Siblings:
    """The calls of one reply so far, and the words between them.

    If there were calls in thoughts that have ended, later ones count only if they are all that the
    rest of the reply consists of (`must_end_reply`): the apparent end of the thoughts may have been
    part of such a call.
    """

    def __init__(self, offered: Collection[str], *, must_end_reply: bool = False) -> None:
        self._offered = offered
        self._objection: Reason | None = None
        self._refused_row: tuple[WrittenCall, ...] = ()
        self._is_behind_row = False
        self._accepted: tuple[str, str] | None = None
        self._has_words = False
        self._behind_break: list[str] = []
        self.has_spoken = False
        self.must_end_reply = must_end_reply

    @property
    def is_settled(self) -> bool:
        return self._objection is not None or bool(self._refused_row)

    def hear(self, words: str) -> None:
        self.has_spoken = self._has_words = True
        if self._objection is Reason.NESTED:
            self._behind_break.append(words)

    def accept(self, found: FoundCalls, opening: str) -> None:
        self._accepted = found.syntax_name, opening
        self._has_words = self._is_behind_row = False
        self._refused_row = ()

    def refuse(self, reason: Reason | None, found: FoundCalls) -> None:
        """Note a call that does not count; one that was not offered means nothing.

        A call that was refused only because of its marks may be repeated.
        """
        self._is_behind_row |= not found.is_marked
        if not self.offers(found):
            return
        if not found.is_marked or reason is Reason.NOT_CLOSED:
            self._refused_row += found.calls
        elif reason is Reason.QUOTED:
            self._object(Reason.QUOTED)
        else:
            self._object(Reason.OUT_OF_ORDER)

    def show_example(self) -> None:
        self._object(Reason.QUOTED)

    def break_off(self, source: str, *, is_marked: bool) -> None:
        """Note a call that cannot be read beyond `source`, if it is one."""
        if is_marked or _call_pattern(frozenset(self._offered)).search(source[:_HEAD]):
            self._objection = Reason.NESTED
            self._behind_break.clear()

    def object_to(self, found: FoundCalls, opening: str) -> Reason | None:
        if self._objection is not None:
            return self._objection
        if self._is_behind_row and not found.is_marked:
            return Reason.OUT_OF_ORDER
        if self._refused_row and found.calls != self._refused_row:
            return Reason.OUT_OF_ORDER
        is_other = self._accepted is not None and (
            found.syntax_name != self._accepted[0] and opening != self._accepted[1]
        )
        return Reason.QUOTED if is_other and self._has_words else None

    def offers(self, found: FoundCalls) -> bool:
        return all(find_name(call.name, self._offered) for call in found.calls)

    def end_thoughts(self) -> "Siblings | None":
        """Return the state after the end of thoughts; None if a call may be broken there.

        A call that broke has to end among the thoughts.
        """
        if self._objection is not Reason.NESTED:
            has_calls = self.is_settled or self._accepted is not None
            return Siblings(self._offered, must_end_reply=self.must_end_reply or has_calls)
        text = "".join(self._behind_break)
        is_over = any(closer in text for closer in _CLOSERS)
        return Siblings(self._offered, must_end_reply=True) if is_over else None

    def _object(self, reason: Reason) -> None:
        if self._objection in (None, Reason.QUOTED):
            self._objection = reason


@lru_cache(maxsize=64)
def _call_pattern(names: frozenset[str]) -> re.Pattern[str]:
    known = "|".join(map(re.escape, sorted(names)))
    return re.compile(rf"(?<![\w.-])(?:{known}){_CALLED}" if known else "(?!)", re.VERBOSE)


LOOKAHEAD = 200  # characters of a line that are examined
_SENTENCE_END = re.compile(r"[.!?…](?:\s|\Z)")


def is_apart(text: str, found: FoundCalls, beginning: Beginning, *, is_all: bool) -> bool | None:
    """Return whether a call is apart from the text on its line; None if that needs more text.

    If one sentence ended before the call and another begins after it, the call belongs to neither.
    Control tokens and calls of several lines are not written in passing, unless a sentence
    continues around or behind them. `is_all` says that no more text is expected.
    """
    first = text[0]
    is_sentence = first.isalpha() and not first.islower()
    is_block = found.source.startswith(CONTROL_BEGINNINGS) or "\n" in found.source.strip()
    may_be_within = not is_block or (beginning.is_apart and not is_sentence)
    if first in CLOSING_QUOTES or (may_be_within and not beginning.is_sentence_start):
        return False
    if is_sentence or not is_block:
        return is_sentence
    line, end, _ = text.partition("\n")
    if first.islower() and not (end or is_all):
        return None
    return not (first.islower() and _SENTENCE_END.search(line))
