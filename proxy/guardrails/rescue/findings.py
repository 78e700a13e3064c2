r"""Defines what a scanner finds in a reply. The findings are reported in the order of the text.

The texts of all `Prose` and `FoundCalls`, joined in order, are the reply. Only three parts are
missing: the `lead` before found calls, the `Gap` after them, and dropped text (`DroppedText`).
After a `RefusedText`, the refused text follows as `Prose`.

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
    """Text that cannot belong to a call. The client may therefore receive it at once."""

    text: str


class ArgumentsStarted(msgspec.Struct, frozen=True):
    """The arguments of a probable call to `name` begin to arrive.

    This finding is reported only for the first call after an opening, and only if the call's name
    precedes its arguments. The call may still be refused (`RefusedText`). Calls without marks
    (`is_marked` is false) are refused more often.
    """

    name: str
    is_marked: bool


class ArgumentsText(msgspec.Struct, frozen=True):
    """The next text of the arguments since the last `ArgumentsStarted`, as the model wrote it."""

    text: str


class FoundCalls(msgspec.Struct, frozen=True):
    """Calls, and their text (`source`) in the reply.

    - `before`: the kind of the words before the calls
    - `within`: the closing marks of the elements that are open before the calls. If one of these
      marks follows the calls, its element encloses them. Indented code has the mark "", which
      every text contains, so it always encloses the calls.
    - `follows_mark`: markup directly precedes the calls; if a mark also follows the calls, the
      markup encloses them
    - `is_doubtful`: the calls are in a position where calls are not accepted, such as in a sentence
    - `ends_reply`: the text after the calls was dropped, because the reply made no progress
    - `lead`: the white space and the leaked tokens before the calls
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
    """White space, closing marks and leaked tokens after a call.

    If the call is later judged to be text, its gap becomes prose, too.
    """

    text: str


class RefusedText(msgspec.Struct, frozen=True):
    """The next finding is a `Prose` whose text looked like a call but was refused."""

    reason: Reason


class DroppedText(msgspec.Struct, frozen=True):
    """Text was dropped; `what` is "invented_result", "too_many_calls" or "stray_mark".

    With `ends_reply`, the rest of the reply is dropped as well, because it made no progress.
    """

    what: str
    ends_reply: bool = False


class ResultText(msgspec.Struct, frozen=True):
    """A result block at the start of the reply or of a line: its content and its source.

    `closed` is false if the closing mark is missing.
    """

    text: str
    source: str
    closed: bool = True


class EarlierReasoning(msgspec.Struct, frozen=True):
    """All findings so far, prose and calls, were part of the reasoning.

    `is_over` is false if the end mark of the reasoning may be part of a broken call.
    """

    is_over: bool = True


Finding: TypeAlias = (
    Prose
    | ArgumentsStarted
    | ArgumentsText
    | FoundCalls
    | Gap
    | RefusedText
    | DroppedText
    | ResultText
    | EarlierReasoning
)
