"""The position of a call in the prose of a reply, and conclusions from it.

`Surroundings` collects the facts at the opening of a call. Everything here is a pure function of
these facts and of the text after the call; later, `guardrails.call_facts` collects the facts for
the table of `provenance` from more text. For example, in

    I'll check: {"name": "look", "arguments": {}} and report back.

the call is on the line of a sentence that announces an act, so `is_in_sentence` is false, and
`is_apart` is false too, because the sentence continues.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from proxy.guardrails.announcements import recognition
from proxy.guardrails.rescue.examples import gives_account, introduces_example
from proxy.guardrails.rescue.marks import CONTROL_BEGINNINGS
from proxy.guardrails.rescue.markup import ends_in_mark
from proxy.guardrails.rescue.provenance import Words

# If a sentence after a call does not end within so many characters, it continues.
LOOKAHEAD = 200
CLOSING_QUOTES = frozenset("\"'”»`")
_SENTENCE_END = re.compile(r"[.!?…](?:\s|\Z)")


@dataclass(frozen=True)
class Position:
    """The text before a call at its `opening`.

    The call `is_first` if only white space and reasoning precede it, and `begins_reply` if only
    calls do. `words` is the end of the prose; the call `is_apart` if white space separates it from
    them. `layout` has the closing marks of the elements around the call, and "" for indented code.
    """

    opening: str = ""
    is_first: bool = True
    begins_reply: bool = True
    words: str = ""
    is_sentence_start: bool = True
    is_apart: bool = False
    layout: tuple[str, ...] = ()

    @cached_property
    def lead(self) -> Words:
        """The kind of words before the call, examined only when it matters."""
        if not self.words.strip():
            return Words.NONE
        is_shown = introduces_example(self.words) or recognition.shows_next(self.words)
        return Words.SHOWING if is_shown else Words.OTHER

    @property
    def is_example(self) -> bool:
        return self.lead is Words.SHOWING

    @cached_property
    def follows_mark(self) -> bool:
        return ends_in_mark(self.words)


def is_in_sentence(position: Position, tools: Sequence[str]) -> bool:
    """Return whether a call belongs to the words before it.

    This is the case if the words are an unfinished sentence, if they report the words of others, or
    if they are on the line of the call and announce no act.
    """
    words = position.words
    if words.rstrip()[-1:].isalnum() or gives_account(words):
        return True
    if not position.opening.startswith(" "):
        return False
    return not (position.is_sentence_start and recognition.announces(words, tools))


def is_apart(text: str, source: str, position: Position, *, is_all: bool) -> bool | None:
    """Return whether a call is separate from the text after it; None if more text is needed.

    If one sentence ended before the call and another begins after it, the call belongs to neither.
    A call with control tokens or with several lines is part of a sentence only if the sentence
    continues after it. With `is_all`, no more text is expected.
    """
    first = text[0]
    # Languages without capital letters (Chinese, Arabic) begin every sentence with such a letter.
    begins_sentence = first.isalpha() and not first.islower()
    is_block = source.startswith(CONTROL_BEGINNINGS) or "\n" in source.strip()
    may_be_within = not is_block or (position.is_apart and not begins_sentence)
    if first in CLOSING_QUOTES or (may_be_within and not position.is_sentence_start):
        return False
    if begins_sentence or not is_block:
        return begins_sentence
    line, end, _ = text.partition("\n")
    if first.islower() and not (end or is_all):
        return None
    return not (first.islower() and _SENTENCE_END.search(line))
