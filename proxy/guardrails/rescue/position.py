"""Decides whether a call is part of a sentence, from its position in the prose of a reply.

`Surroundings` collects the facts at the opening of a call. The functions in this module depend only
on these facts and on the text after the call. Later, `guardrails.call_facts` collects the facts for
the table of `provenance`. For example:

    I'll check: {"name": "look", "arguments": {}} and report back.

`is_in_sentence` returns False, because the words before the call announce an act. `is_separate`
also returns False, because the sentence continues after the call.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from proxy.guardrails.announcements import recognition
from proxy.guardrails.rescue.examples import introduces_example, reports_others
from proxy.guardrails.rescue.marks import CONTROL_BEGINNINGS
from proxy.guardrails.rescue.markup import ends_in_mark
from proxy.guardrails.rescue.provenance import Words

LOOKAHEAD = 200  # characters after a call that are searched for the end of a sentence
CLOSING_QUOTES = frozenset("\"'”»`")
_SENTENCE_END = re.compile(r"[.!?…](?:\s|\Z)")  # not the point in `get_time.py`


@dataclass(frozen=True)
class Position:
    """The position of a call: its `opening`, and facts about the text before it.

    - `is_first`: only white space and reasoning precede the call
    - `begins_reply`: only other calls precede the call
    - `words`: the end of the prose before the call
    - `is_sentence_start`: the call begins a line, or follows the end of a sentence
    - `follows_space`: white space separates the call from the words
    - `layout`: the closing marks of the elements around the call; "" for indented code
    """

    opening: str = ""
    is_first: bool = True
    begins_reply: bool = True
    words: str = ""
    is_sentence_start: bool = True
    follows_space: bool = False
    layout: tuple[str, ...] = ()

    @cached_property
    def lead(self) -> Words:
        """The kind of the words before the call, computed when it is first needed."""
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

    The call belongs to the words if they are an unfinished sentence, if they report another text
    ("the user wrote"), or if they are on the line of the call and announce no act.
    """
    words = position.words
    if words.rstrip()[-1:].isalnum() or reports_others(words):
        return True
    if not position.opening.startswith(" "):
        return False
    return not (position.is_sentence_start and recognition.announces(words, tools))


def is_separate(text: str, source: str, position: Position, *, is_all: bool) -> bool | None:
    """Return whether a call is separate from the text after it; None if more text is needed.

    A call is separate if a sentence ended before it and another sentence begins after it. A call
    with control tokens or with several lines is separate unless the sentence continues after it.
    With `is_all`, no more text will arrive.
    """
    char = text[0]
    # In scripts without lower case (Chinese, Arabic), any letter may begin a sentence.
    begins_sentence = char.isalpha() and not char.islower()
    is_block = source.startswith(CONTROL_BEGINNINGS) or "\n" in source.strip()
    may_be_within = not is_block or (position.follows_space and not begins_sentence)
    if char in CLOSING_QUOTES or (may_be_within and not position.is_sentence_start):
        return False
    if begins_sentence or not is_block:
        return begins_sentence
    line, end, _ = text.partition("\n")
    if char.islower() and not (end or is_all):
        return None
    return not (char.islower() and _SENTENCE_END.search(line))
