r"""The findings of a scanner in a reply, in the order of the text.

Joined in order, all `Prose` and the sources of all `FoundCalls` give the reply again. Three things
are dropped on purpose: the `lead` of found calls, the `Gap` after them, and the text that a
`LeftOut` replaces. The text of a `RefusedText` follows it as `Prose`.

    I look. <tool_call>{"name": "f", "arguments": {}}</tool_call>
    For example: <tool_call>{"name": "g", "arguments": {}}</tool_call>

    Prose("I look."), ArgumentsStarted("f"), ArgumentsText("{}"), FoundCalls(f), Gap("\n"),
    Prose("For example:"), RefusedText(QUOTED), Prose(" <tool_call>...")
"""

from typing import TypeAlias

import msgspec

from proxy.conversation.tools import WrittenCall
from proxy.guardrails.rescue.provenance import Words
from proxy.guardrails.rescue.syntax import Reason


class Prose(msgspec.Struct, frozen=True):
    """Text that cannot belong to a call; it may be shown at once."""

    text: str


class ArgumentsStarted(msgspec.Struct, frozen=True):
    """The arguments of a probable call to `name` begin to arrive.

    Reported only for the first call after an opening, and only if its name comes before its
    arguments. It may still end in a `RefusedText`, more likely if `is_marked` is false.
    """

    name: str
    is_marked: bool


class ArgumentsText(msgspec.Struct, frozen=True):
    """More text of the arguments announced last, as the model wrote it."""

    text: str


class FoundCalls(msgspec.Struct, frozen=True):
    """Calls, and the text in which they were written.

    They are doubtful in a position where calls are not accepted, for example in a sentence.
    `within` has the closing marks of the elements that were opened before the calls: the calls are
    inside of one if its closing mark follows. Indented code has the mark "", which is in any text.
    If `follows_mark`, another mark after the calls shows that they are enclosed. If `ends_reply`,
    the text after the calls was dropped, because the reply made no progress there. `lead` is the
    white space and the leaked tokens before the calls.
    """

    syntax_name: str
    calls: tuple[WrittenCall, ...]
    source: str
    is_marked: bool
    closed: bool
    before: Words = Words.NONE
    within: tuple[str, ...] = ()
    follows_mark: bool = False
    is_doubtful: bool = False
    ends_reply: bool = False
    lead: str = ""


class Gap(msgspec.Struct, frozen=True):
    """White space, closing marks and leaked tokens after a call; prose if the call is text."""

    text: str


class RefusedText(msgspec.Struct, frozen=True):
    """Text that looked like a call; it follows as `Prose`, and nothing else is in that finding."""

    reason: Reason


class LeftOut(msgspec.Struct, frozen=True):
    """Text was dropped: an `invented_result`, or the rest of the reply after `too_many_calls`.

    It `ends_reply` if the reply no longer made progress.
    """

    what: str
    ends_reply: bool = False


class ResultText(msgspec.Struct, frozen=True):
    """The content of a result block that begins the reply or one of its lines, and its source.

    If it is not `closed`, its closing mark is missing.
    """

    text: str
    source: str
    closed: bool = True


class EarlierThoughts(msgspec.Struct, frozen=True):
    """Everything found so far, prose and calls, turns out to have been thoughts.

    It `is_over` unless a call broke there that may still go on.
    """

    is_over: bool = True


Finding: TypeAlias = (
    Prose
    | ArgumentsStarted
    | ArgumentsText
    | FoundCalls
    | Gap
    | RefusedText
    | LeftOut
    | ResultText
    | EarlierThoughts
)
