"""Tells an announcement from an answer: whether the model says that it acts now, and then ends.

"I'll check the weather." is an announcement; a result, a question, an offer, a plan put up for
approval and small talk are answers. In doubt it is an answer: to miss an announcement changes
nothing, to see one in an answer costs a generation and may provoke an act that nobody wanted.
"""

import re
from collections.abc import Sequence

from proxy.guardrails.announcements.endings import ending_of, is_question, made_ready
from proxy.guardrails.announcements.matching import Finding, Matcher
from proxy.guardrails.announcements.registry import matchers_for

_WORD = re.compile(r"[a-z]+|[A-Z]+(?![a-z])|[A-Z][a-z]*")
_MOST_TOOLS = 100


def announces(text: str, tools: Sequence[str] = ()) -> bool:
    """Return whether a reply of prose announces an act; in doubt it does not.

    `tools` are the names of those offered: their words count as acts ("let me grep").
    """
    written = ending_of(text)
    if not written:
        return False
    *before, last = written
    sentence = made_ready(last)
    matchers = matchers_for(sentence.text)
    if before and any(one.is_afterthought(sentence) for one in matchers):
        *before, last = before
        sentence = made_ready(last)
    tool_words = _words_of(tools)
    found = {one.find(sentence, tool_words) for one in matchers}
    if Finding.ANNOUNCED not in found or Finding.BARRED in found:
        return False
    return not any(_asks(one, matchers) for one in before)


def _asks(written: str, matchers: Sequence[Matcher]) -> bool:
    """Return whether a sentence waits for the user, as does what is announced behind it."""
    sentence = made_ready(written)
    return is_question(written) or any(one.is_request(sentence) for one in matchers)


def _words_of(tools: Sequence[str]) -> frozenset[str]:
    return frozenset(
        word.lower() for name in tools[:_MOST_TOOLS] for word in _WORD.findall(name[:64])
    )
