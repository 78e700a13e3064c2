"""Words around calls, in `words.toml`, and those that introduce a call only as an example."""

import re
from functools import cache
from importlib.resources import files

import msgspec

from proxy.guardrails.announcements import recognition

# The length of prose that is needed to recognise an announcement.
LEAD_LENGTH = 120
# A heading or a label ("## Tool usage", "Syntax:"), or a sentence that goes on with an example.
_LABEL = re.compile(
    r"""\b(?:e\.\s?g|such\s+as|as\s+in|looks?\s+like|works\s+like\s+this|would\s+then\s+be
      |(?:you|one|people|models?|they|users?)\s+(?:\w+\s+){0,2}(?:write|send|emit|type)s?(?:\s+\w+){0,3}
      |(?:generated|emitted|sent|received|returned)(?:\s+(?:this|that|me|you|us|back))*(?=\s*:)
      )\b[\s.:,]*\Z
    |(?:\A|[\n.!?])[\W\d]*+(?:(?:tool|function|api|call|xml|json|basic|general)\s+)*
    (?:usage|syntax|format|notation|examples?|예|例)\W*\Z""",
    re.IGNORECASE | re.VERBOSE,
)
_FENCE_AT_END = re.compile(r"\s*```\w*\s*\Z")


class WordLists(msgspec.Struct, frozen=True):
    """The content of `words.toml`, which describes it."""

    labels: frozenset[str]
    forbids: str
    showing: frozenset[str]


@cache
def words_around_calls() -> WordLists:
    """Read the lists when the first call is found."""
    file = files("proxy.guardrails.rescue") / "words.toml"
    return msgspec.toml.decode(file.read_bytes(), type=WordLists)


def introduces_example(words: str) -> bool:
    """Return whether `words` introduce an example."""
    lead = _FENCE_AT_END.sub("", words)
    return _LABEL.search(lead) is not None or recognition.shows_next(lead, may_report=False)


def introduces_other_words(words: str) -> bool:
    """Return whether `words` introduce an example, or what somebody else writes."""
    return introduces_example(words) or recognition.shows_next(_FENCE_AT_END.sub("", words))
