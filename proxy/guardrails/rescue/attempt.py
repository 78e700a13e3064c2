"""One opening in a reply: the syntaxes that share it, tried one after the other."""

from collections.abc import Collection, Sequence

from proxy.guardrails.rescue.findings import ArgumentsStarted, ArgumentsText, Finding
from proxy.guardrails.rescue.syntax import Calls, NotACall, Reading, Reason, Syntax
from proxy.guardrails.rescue.values.cursor import Cursor


class Attempt:
    """Reads what stands behind an opening, each candidate from the same place.

    If none finds a call, everything that any of them passed counts as read, so no character is
    read more often than there are candidates.
    """

    def __init__(
        self, cursor: Cursor, candidates: Sequence[tuple[str, Syntax]], offered: Collection[str]
    ) -> None:
        cursor.begin()
        self._cursor = cursor
        self._offered = offered
        self._left = list(candidates)
        self._furthest = 0
        self._reason = Reason.NOT_A_CALL
        self._heard: list[Finding] = []
        self.is_marked = any(syntax.is_marked for _, syntax in candidates)
        self._start_next()

    def resume(self) -> Calls | NotACall | None:
        """Read on; None means that more text is needed."""
        while True:
            outcome = self._advance()
            if not isinstance(outcome, NotACall):
                return outcome
            passed = len(self._cursor.source())
            if passed > self._furthest:
                self._furthest, self._reason = passed, outcome.reason
            self._cursor.rewind()
            if not self._left:
                self._cursor.advance(self._furthest)
                return NotACall(self._reason)
            self._start_next()

    def take_heard(self) -> list[Finding]:
        """Return what was announced about arguments since the last time."""
        heard, self._heard = self._heard, []
        return heard

    def _start_next(self) -> None:
        opening, self.syntax = self._left.pop(0)
        self._cursor.advance(len(opening))
        self._reading: Reading = self.syntax.read(self._cursor, opening)
        self._has_announced = False

    def _advance(self) -> Calls | NotACall | None:
        try:
            next(self._reading)
        except StopIteration as end:
            outcome: Calls | NotACall | None = end.value
        else:
            outcome = None
        self._listen()
        return outcome

    def _listen(self) -> None:
        name = self._cursor.arguments_name
        if name is None or not (self.syntax.is_marked or name in self._offered):
            return
        if not self._has_announced:
            self._has_announced = True
            self._heard.append(ArgumentsStarted(name, self.syntax.is_marked))
        if text := self._cursor.take_echo():
            self._heard.append(ArgumentsText(text))
