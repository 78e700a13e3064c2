"""The verdict on a reply: `Accepted`, or `Rejected` with a `Defect`."""

from enum import Enum
from typing import TypeAlias

import msgspec

from proxy.conversation.endings import STOP
from proxy.conversation.messages import Messages
from proxy.conversation.tools import ToolCall, WrittenCall
from proxy.facts import Fact


class Defect(Enum):
    """The reason for a rejection; the values are public in metrics and headers."""

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
    """The reply for the client, whose calls are all valid; `reason` is the finish reason."""

    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    reason: str = STOP
    facts: tuple[Fact, ...] = ()


class Rejected(msgspec.Struct, frozen=True):
    """A reply that has to be retried.

    - `nudge` is appended to the history for the retry.
    - `fallback` is the reply for the client if there is no further attempt.
    - `objection` names the tool and its problem, for the log.
    - `tool` is the called tool, if only its arguments are wrong.
    - `denied` are calls that later replies must not make.
    - `text_without_calls` is the text of `fallback` without the calls that it probably contains;
      None if it contains no calls.
    """

    defect: Defect
    nudge: Messages
    fallback: Accepted
    facts: tuple[Fact, ...] = ()
    objection: str = ""
    tool: str = ""
    denied: tuple[WrittenCall, ...] = ()
    text_without_calls: str | None = None


Verdict: TypeAlias = Accepted | Rejected
