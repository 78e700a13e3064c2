"""The judgment of one reply as data: `Accepted`, or `Rejected` with its `Defect`.

`review` makes a verdict; a misbehaving model never causes an exception.
"""

from enum import Enum
from typing import TypeAlias

import msgspec

from proxy.conversation.endings import STOP
from proxy.conversation.messages import Messages
from proxy.conversation.tools import ToolCall, WrittenCall
from proxy.facts import Fact


class Defect(Enum):
    """What is wrong with a rejected reply."""

    PROSE = "prose"
    ANNOUNCED = "announced"
    UNKNOWN_SYNTAX = "unknown_syntax"
    DOUBTFUL = "doubtful_call"
    EMPTY = "empty"
    UNKNOWN_TOOL = "unknown_tool"
    WRONG_TOOL = "wrong_tool"
    BROKEN_ARGUMENTS = "broken_arguments"
    INVALID_ARGUMENTS = "invalid_arguments"
    UNREADABLE = "unreadable"
    INVALID_ANSWER = "invalid_answer"
    LOOP = "loop"
    EXECUTED = "executed_call"
    ECHO = "echoed_result"
    MISPLACED = "misplaced_call"
    INVENTED = "invented_values"
    STEP_MISSING = "step_missing"
    CUT_OFF = "cut_off"
    NOT_CONTINUED = "not_continued"


class Accepted(msgspec.Struct, frozen=True):
    """What the client gets. `reason` is the finish reason; every call is valid for its tool."""

    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    reason: str = STOP
    facts: tuple[Fact, ...] = ()


class Rejected(msgspec.Struct, frozen=True):
    """A reply that calls for another attempt.

    `nudge` is appended to the history before asking again; `fallback` is the most faithful reply
    that can be made of it, if there is no further attempt. `objection` tells people the tool, and
    what is wrong with the call. `tool` is the offered one that the model has called, where only its
    arguments are wrong. Calls that are `denied` must not be made. `words` is what remains of the
    fallback's text without the calls that it probably holds, None if it holds none.
    """

    defect: Defect
    nudge: Messages
    fallback: Accepted
    facts: tuple[Fact, ...] = ()
    objection: str = ""
    tool: str = ""
    denied: tuple[WrittenCall, ...] = ()
    words: str | None = None


Verdict: TypeAlias = Accepted | Rejected
