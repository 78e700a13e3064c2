"""What happened to the earlier calls of a reply, and what that means for the later ones.

The calls of a reply are meant in their order: behind one that was meant and could not be taken, no
later one is taken alone. Behind a call that broke, nobody can tell what still belongs to it.
"""

import re
from collections.abc import Collection
from functools import lru_cache

from proxy.conversation.tools import WrittenCall
from proxy.guardrails.names import meant_by
from proxy.guardrails.rescue.findings import Found
from proxy.guardrails.rescue.openings import STRAY_CLOSERS, THOUGHT_ENDS
from proxy.guardrails.rescue.syntax import Reason

_SIGHT = 300
_CLOSERS = STRAY_CLOSERS - THOUGHT_ENDS
# What stands behind the name of a tool where it is called, and not only mentioned.
_CALLED = r"""(?:["'>]|\s*[<{]|:\s*\{|\s*\(\s*(?:\{|\w+\s*=)|\s+\w+\s*=|\s+Action\ Input:)"""


class Siblings:
    """The calls of one reply so far, and the words between them.

    Where calls stood in thoughts that have ended, others count only if they are all that the rest
    of the reply consists of (`must_end_reply`): what looked like the end of thoughts may have been
    a part of such a call.
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
        """Whether it is known that next to no later call counts."""
        return self._objection is not None or bool(self._refused_row)

    def hear(self, words: str) -> None:
        """Take note of prose."""
        self.has_spoken = self._has_words = True
        if self._objection is Reason.NESTED:
            self._behind_break.append(words)

    def accept(self, found: Found, opening: str) -> None:
        """Take note of a call that counts."""
        self._accepted = found.syntax_name, opening
        self._has_words = self._is_behind_row = False
        self._refused_row = ()

    def refuse(self, reason: Reason | None, found: Found) -> None:
        """Take note of a call that does not count; one that nobody offered means nothing.

        One that only the marks around it, or the lack of them, forbade may be repeated.
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
        """Take note of an example that cannot be read: others may follow."""
        self._object(Reason.QUOTED)

    def break_off(self, source: str, *, is_marked: bool) -> None:
        """Take note of a call that cannot be read beyond `source`, if it is one."""
        if is_marked or _calls(frozenset(self._offered)).search(source[:_SIGHT]):
            self._objection = Reason.NESTED
            self._behind_break.clear()

    def objection(self, found: Found, opening: str) -> Reason | None:
        """Tell what forbids a call, whatever follows it."""
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

    def offers(self, found: Found) -> bool:
        """Return whether all tools that are called are offered."""
        return all(meant_by(call.name, self._offered) for call in found.calls)

    def end_thoughts(self) -> "Siblings | None":
        """Return what begins behind the end of thoughts; None if a call may be broken there.

        A call that broke has to have its end among the thoughts.
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
def _calls(names: frozenset[str]) -> re.Pattern[str]:
    """Return what a call of one of these tools looks like."""
    known = "|".join(map(re.escape, sorted(names)))
    return re.compile(rf"(?<![\w.-])(?:{known}){_CALLED}" if known else "(?!)", re.VERBOSE)
