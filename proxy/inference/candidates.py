"""The answers that rejected replies would make, should nothing better come: the best of them."""

import msgspec

from proxy.conversation.replies import UsageReported
from proxy.guardrails.verdict import Accepted
from proxy.inference.reply_reader import Listening


class Candidate(msgspec.Struct, frozen=True):
    """An answer, with the `listening` that can show it and what its reply cost."""

    answer: Accepted
    listening: Listening
    usage: UsageReported | None


class BestCandidate:
    """The most faithful answer so far: calls before text, later before earlier."""

    def __init__(self) -> None:
        self.found: Candidate | None = None

    def offer(self, candidate: Candidate, *, is_meant: bool, is_resumed: bool) -> None:
        """Take the candidate if it is better.

        What the client has seen the beginning of is not replaced by text that was rejected later
        (`is_resumed`), and no text by that of a constrained attempt, which was not meant for
        anybody.
        """
        if self.found is None or candidate.answer.calls:
            self.found = candidate
            return
        best = self.found.answer
        is_said = bool(candidate.answer.text.strip()) and not (is_resumed or best.calls)
        if is_said and (is_meant or not best.text.strip()):
            self.found = candidate
