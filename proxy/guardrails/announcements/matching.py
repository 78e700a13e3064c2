"""Searches a sentence for the cues of a language."""

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Literal, TypeAlias

from proxy.guardrails.announcements.cues import Cues, split_phrases

_NEVER = re.compile(r"(?!)")
_COLON, _ELLIPSIS = ":", "…"
_END = rf"(?: [{_COLON}{_ELLIPSIS}])? \Z"
# In "I'll check the weather: it is sunny.", the words after the colon are the result of the act, so
# the sentence is an answer. Quotations and code, which may contain colons, are already removed.
_RESULT_AFTER_COLON = re.compile(r" : .*[^\W\d_]")
_TAIL = 60  # characters at the end of a sentence that are searched: Japanese has the verb there


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence after `recognition.normalize`: a space before and after each word and mark."""

    text: str
    words: frozenset[str]


# The result for a sentence in one language. A "barred" sentence has a cue, but is an answer.
CueFinding: TypeAlias = Literal["nothing", "announced", "barred"]


def _compile(field: str) -> "cached_property[re.Pattern[str]]":
    """Return a property with the pattern for the phrases in one field of `Cues`."""
    return cached_property(lambda matcher: matcher.pattern(getattr(matcher.cues, field)))


class Matcher:
    """The cues of one language; patterns are compiled when they are first needed."""

    def __init__(self, cues: Cues) -> None:
        self.cues = cues
        self.language = cues.language
        self.script = cues.script
        self._space = " " if cues.is_spaced else ""
        fields = cues.openings, cues.subjects, cues.forms, cues.starts, cues.trailing, cues.endings
        self._first_words = _first_words_of(",".join((*fields, cues.wholes)))
        self._words_of_afterthoughts = _first_words_of(cues.afterthoughts)
        self._last_words = tuple(
            phrase.rpartition(" ")[2] for phrase in split_phrases(cues.suffixes)
        )

    def prepare(self) -> None:
        """Compile all patterns now, which takes 10 to 100 ms."""
        for name in _PATTERNS:
            getattr(self, name)

    def find(self, sentence: Sentence, tool_words: Collection[str]) -> CueFinding:
        """Classify a sentence. The words in tool names (`tool_words`) also count as acts."""
        if not self._may_have_cue(sentence.words):
            return "nothing"
        spans = list(self._spans(sentence.text, tool_words))
        if not spans:
            return "nothing"
        if self._bar.search(sentence.text.replace(" ,", "")) or self.is_request(sentence):
            return "barred"
        is_announced = any(self._is_cue(sentence.text, start, end) for start, end in spans)
        return "announced" if is_announced else "barred"

    def is_request(self, sentence: Sentence) -> bool:
        return self._request.search(sentence.text) is not None

    def is_afterthought(self, sentence: Sentence) -> bool:
        """Return whether a sentence comments on the act that the sentence before it announces.

        An example is the second sentence of "I'll check the weather. This may take a moment."
        """
        if self._words_of_afterthoughts.isdisjoint(sentence.words) and self.cues.is_spaced:
            return False
        return self._afterthought.match(sentence.text) is not None

    def shows(self, sentence: Sentence, *, may_report: bool) -> bool:
        """Return whether a sentence presents an adjacent call as an example or a report."""
        is_quote = self._quote.search(sentence.text) is not None
        return is_quote or (may_report and self._report.search(sentence.text) is not None)

    def _may_have_cue(self, words: Collection[str]) -> bool:
        """Return False if no cue of this language can match.

        This check is fast. Without it, each sentence in Latin letters would be searched with the
        patterns of ten languages.
        """
        if not self.cues.is_spaced or not self._first_words.isdisjoint(words):
            return True
        last_words = self._last_words
        return bool(last_words) and any(word.endswith(last_words) for word in words)

    def _spans(self, text: str, tool_words: Collection[str]) -> Iterator[tuple[int, int]]:
        """Yield the start and the end of each cue in a sentence."""
        last = self._last.finditer(text, max(0, len(text) - _TAIL))
        for match in chain(self._cue.finditer(text), last):
            yield match.span()
        for match in self._start.finditer(text):
            after = text[match.end() :]
            clause = self._clause.search(after)
            if not self._finite.search(after[: clause.start() + 1] if clause else after):
                yield match.span()  # no verb follows, so the match is not a subject
        for match in self._opening.finditer(text):
            if self._is_act(match[1], text, tool_words):
                yield match.span()

    def _is_act(self, word: str, text: str, tool_words: Collection[str]) -> bool:
        """Return whether the word after an opening names an act.

        A word in the name of a tool names an act, and verbs of speech (`sayings`, such as "say") do
        not. In a language with a list of `sayings`, any other word names an act if the sentence is
        urgent, for example because it ends with a colon.
        """
        if word in self._sayings or not word.isalpha():
            return False
        if word in tool_words:
            return True
        is_urgent = text.endswith(f" {_COLON} ") or self._urgency.search(text) is not None
        return is_urgent and bool(self._sayings)

    def _is_cue(self, text: str, start: int, end: int) -> bool:
        """Return False if a phrase inside or next to the cue makes the sentence an answer."""
        before, cue, after = text[:start], text[start:end], text[end:]
        if self._before.search(before) or self._beside.search(before):
            return False
        if self._inside.search(f" {cue} "):
            return False
        return not (self._after.match(after) or _RESULT_AFTER_COLON.search(after))

    @cached_property
    def _cue(self) -> re.Pattern[str]:
        cues, fillers = self.cues, self._fillers
        gap = f"(?:{'[^ ,]+ ' if cues.is_spaced else '[^,]'}){{0,{cues.gap}}}?"
        subjects, verbs = _any_of(cues.subjects), _any_of(cues.verbs)
        forms = (
            f"(?:{_any_of(cues.openings)}){self._space}{fillers}{gap}(?:{_any_of(cues.acts)})",
            f"(?:{subjects}) {fillers}(?:{verbs})",
            f"(?:{verbs}) (?:{subjects})",
            f"(?:{_any_of(cues.forms)})",
        )
        return re.compile("|".join(map(self._bound, forms)))

    @cached_property
    def _last(self) -> re.Pattern[str]:
        """A pattern for cues at the end: a stem and its suffix, an ending, or a whole sentence."""
        cues = self.cues
        particles = _any_number_of(f" ?(?:{_any_of(cues.particles)})")
        stem = f"(?:{_any_of(cues.stems)}) ?(?:{_any_of(cues.suffixes)})"
        last = self._bound(f"(?:{stem}|(?:{_any_of(cues.endings)})){particles}(?={_END})")
        whole = _any_of(cues.wholes).replace(" ", "(?: ,)? ")
        return re.compile(rf"{last}|(?<=\A ){self._leads}(?:{whole}){particles}(?={_END})")

    @cached_property
    def _start(self) -> re.Pattern[str]:
        """A pattern for cues at the start of a sentence, or after a colon or a comma."""
        urgent = rf"(?=.* (?:{_any_of(self.cues.urgencies)}){_END})"
        begins = rf"(?:(?<=\A )|(?<=: )|(?<=, ){urgent}){self._leads}"
        trailing = rf"(?:{_any_of(self.cues.trailing)})(?=.* {_ELLIPSIS} \Z)"
        starts = f"(?:{_any_of(self.cues.starts)})"
        return re.compile(self._bound(f"{begins}(?:{starts}|{trailing})"))

    @cached_property
    def _opening(self) -> re.Pattern[str]:
        """A pattern for an opening and the word after it; with `cues.gap`, it never matches."""
        if self.cues.gap:
            return _NEVER
        return re.compile(rf"(?<= )(?:{_any_of(self.cues.openings)}) {self._fillers}([^ ]+)")

    @cached_property
    def _urgency(self) -> re.Pattern[str]:
        return re.compile(f" (?:{_any_of(self.cues.urgencies)}){_END}")

    @cached_property
    def _sayings(self) -> frozenset[str]:
        return frozenset(split_phrases(self.cues.sayings))

    @cached_property
    def _afterthought(self) -> re.Pattern[str]:
        return self.pattern(self.cues.afterthoughts, self._leads, at=" ")

    @cached_property
    def _beside(self) -> re.Pattern[str]:
        before = "(?<= )" if self.cues.is_spaced else ""
        return re.compile(rf"{before}(?:{_any_of(self.cues.bars_beside)}){self._space}\Z")

    @cached_property
    def _after(self) -> re.Pattern[str]:
        return self.pattern(self.cues.bars_after, at=self._space)

    _bar = _compile("bars")
    _request = _compile("requests")
    _before = _compile("bars_before")
    _quote = _compile("quotes")
    _report = _compile("reports")
    _inside = _compile("bars_inside")
    _finite = _compile("finites")
    _clause = _compile("clauses")

    @property
    def _fillers(self) -> str:
        return _any_number_of(f"(?:{_any_of(self.cues.fillers)}){self._space}")

    @property
    def _leads(self) -> str:
        return _any_number_of(f"(?:{_any_of(self.cues.leads)}) (?:, )?")

    def pattern(self, listed: str, prefix: str = "", at: str = "") -> re.Pattern[str]:
        return re.compile(at + self._bound(f"{prefix}(?:{_any_of(listed)})"))

    def _bound(self, pattern: str) -> str:
        return f"(?<= )(?:{pattern})(?= )" if self.cues.is_spaced else pattern


_PATTERNS = tuple(
    name for name, value in vars(Matcher).items() if isinstance(value, cached_property)
)


def _any_of(listed: str) -> str:
    """Return a pattern that matches any listed phrase; without phrases it never matches."""
    phrases = [re.escape(phrase).replace(r"\ ", " ") for phrase in split_phrases(listed)]
    return "|".join(phrases).replace(r"\*", "[^ ]*") or "(?!)"


def _any_number_of(pattern: str) -> str:
    """Return an atomic repetition, because backtracking would take exponential time."""
    return f"(?>{pattern})*"


def _first_words_of(listed: str) -> frozenset[str]:
    return frozenset(phrase.partition(" ")[0] for phrase in split_phrases(listed))
