"""What the words behind a call, on its line, make of it: part of a sentence, or a call."""

import re
from dataclasses import dataclass
from enum import Enum

from proxy.guardrails.rescue.findings import Found
from proxy.guardrails.rescue.modes import Beginning
from proxy.guardrails.rescue.openings import CONTROL_BEGINNINGS
from proxy.guardrails.rescue.surroundings import CLOSING_QUOTES

SIGHT = 200  # as much of a line as is looked at
_WORD = re.compile(r"[^\W\d_]*")
_LONGEST_WORD = 24
_JOINT = re.compile(r"(?:[,;&+]\s*)?(?:and\s+)?(?:then\s+)?")
_LINE = re.compile(r"[,;&+\s]*[^\n]*")
# Punctuation behind a call that belongs to a sentence around it.
_CONTINUES = frozenset(".,;:!?)]}|/\\=<>\"'”»`")
# Of what a call can be the subject.
_VERBS = frozenset(
    (
        *("are", "was", "were", "be", "been", "am", "would", "will", "can", "could", "may"),
        *("must", "should", "shall", "cannot", "had", "have", "did", "do", "got", "made", "might"),
        *("meant", "mean", "failed", "worked", "returned", "gave", "looked", "asked", "called"),
        *("ist", "sind", "wird", "est", "sont", "es", "son", "jest"),
    )
)
# With what a sentence goes on behind a call that is only mentioned in it.
_CONJUNCTIONS = frozenset(
    (
        *("or", "nor", "vs", "versus", "instead", "rather", "not", "but", "because", "if", "when"),
        *("which", "that", "who", "where", "while", "so", "since", "unless", "whose", "like"),
        *("in", "of", "for", "with", "without", "to", "from", "at", "by", "on", "into"),
        *("call", "mark", "tell", "ask", "look", "return", "give", "make", "get", "show"),
        *("oder", "ou", "o", "lub"),
    )
)
# Words that end like the third person of a verb and are none.
_OTHER_WORDS = frozenset(("this", "thus", "yes", "always", "perhaps", "less", "results", "thanks"))


class Sequel(Enum):
    """How a line goes on behind a call: `OPEN` where the words do not tell."""

    APART = "apart"
    WORDS = "words"
    OPEN = "open"


@dataclass(frozen=True, slots=True)
class Ahead:
    """The text behind a call, as much of it as is looked at; `is_all` if no more is waited for."""

    text: str
    is_all: bool

    def sequel_to(self, found: Found, begun: Beginning) -> Sequel | None:
        """Tell how the line goes on; None where more text is needed.

        Where one sentence ended before the call and another begins behind it, the call stands in
        neither. Control tokens are not written in passing, nor are calls of several lines, unless
        words go on around them. Other calls may at most begin the reply.
        """
        word = self._word
        if word is None:
            return None
        is_sentence = self.text[0].isalpha() and not self.text[0].islower()
        if found.source.startswith(CONTROL_BEGINNINGS) or "\n" in found.source.strip():
            is_in_words = begun.is_apart and not begun.is_sentence_start and not is_sentence
            is_mentioned = _is_verb(word) or self.text[0] in CLOSING_QUOTES
            return Sequel.WORDS if is_in_words or is_mentioned else Sequel.APART
        if not begun.is_sentence_start:
            return Sequel.WORDS
        if is_sentence:
            return Sequel.APART
        if self._is_line_open:
            return None
        return Sequel.OPEN

    def may_stand_apart(self, found: Found, begun: Beginning) -> bool:
        """Return whether a call may begin the reply although the words behind it may go with it.

        It has to be more than a tag, and the words no part of a sentence with it.
        """
        word = self._word or ""
        continues = self.text[0] in _CONTINUES or _is_verb(word) or word in _CONJUNCTIONS
        is_more = "{" in found.source or found.source.count("</") > 1
        is_more = is_more or all(call.arguments for call in found.calls)
        return begun.begins_reply and is_more and not continues

    @property
    def joint(self) -> str:
        """What joins the call to another one that may follow it."""
        found = _JOINT.match(self.text)
        return found[0] if found else ""

    @property
    def line(self) -> str:
        """The rest of the line."""
        found = _LINE.match(self.text)
        return found[0] if found else ""

    @property
    def _is_line_open(self) -> bool:
        return not self.is_all and self.line == self.text

    @property
    def _word(self) -> str | None:
        """The word that comes next, in small letters; None if it may go on."""
        found = _WORD.match(self.text)
        word = found[0] if found else ""
        is_open = word == self.text and len(word) < _LONGEST_WORD
        return None if is_open and not self.is_all else word.casefold()


def _is_verb(word: str) -> bool:
    """Return whether a call may be the subject of a word; the third person ends in an s."""
    is_third_person = word.endswith("s") and len(word) > 1 and word not in _OTHER_WORDS
    return is_third_person or word in _VERBS
