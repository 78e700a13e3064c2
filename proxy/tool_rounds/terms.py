"""What stays the same for all rounds of a run, and why one is over."""

from enum import Enum

import msgspec

from proxy import bounds
from proxy.conversation.workflows import NO_RULES, Workflow

MOST_ROUNDS = 10
MOST_FAILED_ROUNDS = 3
MOST_RESULT_CHARS = bounds.RESULT_CHARACTERS

_SHARE = 0.25  # of the window, for all results of one round
_CHARS_PER_TOKEN = 3  # of JSON; prose has four
_LEAST_CHARS = 200  # a shorter result would not be worth reading


class Stop(Enum):
    """Why a run is over.

    `ANSWERED`: by an answer, or by calls of the client's own tools. `TERMINAL`: a terminal tool has
    succeeded. `ROUNDS`: there were as many as there may be, and the model was asked for an answer.
    `FAILURES`: tools failed round after round. `EXHAUSTED`: no reply was fit to be used.
    `CANCELLED`: somebody wanted it to end.
    """

    ANSWERED = "answered"
    TERMINAL = "terminal"
    ROUNDS = "rounds"
    FAILURES = "failures"
    EXHAUSTED = "exhausted"
    CANCELLED = "cancelled"


class RunTerms(msgspec.Struct, frozen=True):
    """The terms of a run.

    `owned` are the tools that are executed here. After `rounds` rounds of tools the model is asked
    for an answer; after `failed_rounds` in a row, each with a failure that counts, it is over. A
    result has `result_chars` characters at most, and all of a round share a part of the `window`,
    in tokens, where it is known.
    """

    owned: frozenset[str]
    workflow: Workflow = NO_RULES
    rounds: int = MOST_ROUNDS
    failed_rounds: int = MOST_FAILED_ROUNDS
    result_chars: int = MOST_RESULT_CHARS
    window: int | None = None

    def chars_for(self, calls: int) -> int:
        if self.window is None:
            return self.result_chars
        fair = int(self.window * _SHARE * _CHARS_PER_TOKEN) // max(1, calls)
        return min(self.result_chars, max(_LEAST_CHARS, fair))
