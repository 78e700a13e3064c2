"""Numbers and words as models write them without quotation marks, once they have been read."""

import re
from math import isinf

from proxy.conversation.json import JsonValue
from proxy.guardrails.rescue.values.written import Problem, Unreadable

STRICT_WORDS: dict[str, JsonValue] = {"true": True, "false": False, "null": None}
WORDS: dict[str, JsonValue] = {**STRICT_WORDS, "True": True, "False": False, "None": None}
NUMERIC = re.compile(r"[-+.0-9eE]+")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_CODE = re.compile(r"0[0-9]+")
_DIGITS_LIMIT = 1000


def number_in(text: str, *, is_python: bool = False) -> JsonValue | Unreadable:
    """Return the number that a text is.

    Digits behind a zero are no number in JSON. Python's readers keep them as text: they may be a
    code of which the zero is a part, and what is due is for the schema to say.
    """
    if len(text) > _DIGITS_LIMIT:
        return Unreadable(Problem.TOO_LONG)
    match = _NUMBER.fullmatch(text)
    if match is None:
        return text if is_python and _CODE.fullmatch(text) else Unreadable(Problem.UNEXPECTED)
    if match.lastindex is None:
        return int(text)
    number = float(text)
    return Unreadable(Problem.TOO_LONG) if isinf(number) else number


def meaning_of(text: str) -> JsonValue:
    """Return what a text without quotation marks means: a word, a number, or itself."""
    if text in WORDS:
        return WORDS[text]
    number = number_in(text)
    return text if isinstance(number, Unreadable) else number
