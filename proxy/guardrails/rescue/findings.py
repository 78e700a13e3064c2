r"""The findings of a scanner in a reply, in the order of the text.

The texts of all `Prose` and `FoundCalls`, joined in order, are the reply without three parts: the
`lead` before found calls, the `Gap` after them, and the text that a `LeftOut` replaces. After a
`RefusedText`, its text follows as `Prose`.

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

    This is reported only for the first call after an opening, and only if its name precedes its
    arguments. The call may still be refused (`RefusedText`), more often if it is not `is_marked`.
    """

    name: str
    is_marked: bool


class ArgumentsText(msgspec.Struct, frozen=True):
    """More text of the arguments after the last `ArgumentsStarted`, as the model wrote it."""

    text: str


class FoundCalls(msgspec.Struct, frozen=True):
    """Calls, and their text (`source`) in the reply.

    - The calls are doubtful (`is_doubtful`) in a position where calls are not accepted, for example
      in a sentence.
    - `within` has the closing marks of the elements that are open before the calls: if such a mark
      follows, the element encloses the calls. Indented code has the mark "", which any text
      contains.
    - If the calls `follows_mark`, a mark after them shows that markup encloses them.
    - If `ends_reply`, the text after the calls was dropped, because the reply made no progress.
    - `lead` is the white space and the leaked tokens before the calls.
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

    If the call turns out to be text, they are prose.
    """

    text: str


class RefusedText(msgspec.Struct, frozen=True):
    """The next finding is a `Prose` with text that looked like a call, and with no other text."""

    reason: Reason


class LeftOut(msgspec.Struct, frozen=True):
    """Text was dropped: an `invented_result`, or the rest of the reply after `too_many_calls`.

    If `ends_reply`, the rest of the reply is dropped as well, because it made no progress.
    """

    what: str
    ends_reply: bool = False


class ResultText(msgspec.Struct, frozen=True):
    """The content and the source of a result block at the start of the reply or of a line.

    If the block is not `closed`, its closing mark is missing.
    """

    text: str
    source: str
    closed: bool = True


class EarlierThoughts(msgspec.Struct, frozen=True):
    """All findings so far, prose and calls, were part of the reasoning.

    The reasoning `is_over`, unless its end mark may be part of a broken call.
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
