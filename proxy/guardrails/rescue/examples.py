"""Recognizes words that introduce a call as an example.

    Use this format: <tool_call>...        an example
    I'll use this tool: <tool_call>...     a call

The lists of words around calls are in `words.toml`.
"""

# ruff: noqa: RUF001 - Chinese sentences end in fullwidth marks

import re
from functools import cache
from importlib.resources import files

import msgspec

# At most this many characters before a call are needed to recognize an announcement.
LEAD_LENGTH = 120
_FLAGS = re.IGNORECASE | re.VERBOSE
_END = r"\s*(?:```\w*\s*)?\Z"
_LIKE_THIS = re.compile(rf"\b(?:like\s(?:this|so)|as\sfollows|thus)\s*[:：,]?{_END}", _FLAGS)
# "I will do it like this:" announces an act; "A call looks like this:" does not.
_OWN = re.compile(r"\b(?:I|we|me|us|let's|let’s)\b", re.IGNORECASE)
_SENTENCE_END = re.compile(r"[.!?…。！？]\s|\n")
# If a sentence with these words precedes plain JSON, the JSON is quoted from another text.
_ACCOUNT = re.compile(
    r"""\b(?:you|user|would|could|might|returned|received|got|sent|wrote|written|said|says
    |contains?|shows?|logs?|observation|response|payload|body)\b""",
    _FLAGS,
)


class WordLists(msgspec.Struct, frozen=True):
    """The content of `words.toml`; the comments in the file describe the lists."""

    labels: frozenset[str]
    forbids: str
    showing: frozenset[str]
    hints: tuple[str, ...]
    announcements: tuple[str, ...]
    parts: dict[str, str]


@cache
def words_around_calls() -> WordLists:
    """Read the lists when first needed; reading them earlier made the start 3.5 % slower."""
    file = files("proxy.guardrails.rescue") / "words.toml"
    return msgspec.toml.decode(file.read_bytes(), type=WordLists)


@cache
def _announcements() -> list[re.Pattern[str]]:
    """Compile the patterns when first needed; compiling them earlier would slow down the start."""
    known = words_around_calls()
    patterns: list[re.Pattern[str]] = []
    for source in known.announcements:
        for name, part in known.parts.items():
            source = source.replace(f"{{{name}}}", part)
        patterns.append(re.compile(source + _END, _FLAGS))
    return patterns


def introduces_example(words: str) -> bool:
    """Return whether `words` introduce an example or a quotation."""
    folded = words.casefold()  # searching for substrings is faster than sixteen patterns
    if not any(hint in folded for hint in words_around_calls().hints):
        return False
    if any(pattern.search(words) for pattern in _announcements()):
        return True
    return _LIKE_THIS.search(words) is not None and not _OWN.search(_last_sentence(words))


def reports_others(words: str) -> bool:
    """Return whether the last sentence reports another text, as in "the user wrote"."""
    is_any = _ACCOUNT.search(words) is not None
    return is_any and _ACCOUNT.search(_last_sentence(words)) is not None


def _last_sentence(words: str) -> str:
    text = words.rstrip()
    ends = [match.end() for match in _SENTENCE_END.finditer(text)]
    return words[ends[-1] :] if ends else words
