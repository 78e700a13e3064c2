"""Texts about a request: sentences for the dashboard, short forms for log lines.

The texts come from `proxy.facts`. Text of clients and models ("foreign text") is escaped, so that
it can neither forge a line nor control a terminal.
"""

from collections import Counter
from collections.abc import Iterable
from json.encoder import encode_basestring_ascii

import msgspec

from proxy import facts
from proxy.conversation import json
from proxy.conversation.json import JsonValue
from proxy.facts import WORDS, Fact

_MOST = 40  # sentences per request
# Spaces of French and Chinese text, and the joiners of Persian, Hindi and emoji. `isprintable`
# rejects these characters, but they neither move a cursor nor reorder text.
_HARMLESS = "\u00a0\u202f\u3000\u200c\u200d"


def page_words() -> str:
    """Return the texts of the dashboard as a JavaScript module."""
    tables: dict[str, JsonValue] = {
        "OUTCOMES": {word: label for word, (label, _) in WORDS.outcomes.items()},
        "OUTCOMES_EXPLAINED": {word: meaning for word, (_, meaning) in WORDS.outcomes.items()},
        "PHASES": {**WORDS.stages},
        "LEFT": {**WORDS.departures},
    }
    return "".join(f"export const {name} = {json.dump_text(t)};\n" for name, t in tables.items())


def sentences(request_facts: Iterable[Fact]) -> tuple[str, ...]:
    """Return a sentence for each repair, refusal and retry, without repetitions."""
    texts = (words.sentence for fact in request_facts if (words := fact.words()) is not None)
    return tuple(map(escape, dict.fromkeys(texts)))[:_MOST]


def summarize(request_facts: Iterable[Fact]) -> str:
    """Return the repairs, refusals and retries in one line; "" if there were none.

    Equal events are counted: `2 calls rescued from text (hermes), 3 values converted`.
    """
    all_facts = [*request_facts]
    syntaxes = [fact.syntax for fact in all_facts if isinstance(fact, facts.Rescued)]
    phrases = [words for fact in all_facts if (words := fact.words()) is not None and words.few]
    counts = Counter(words.several for words in phrases if words.several)
    singular = {words.several: words.few for words in phrases}
    parts = [words.few for words in phrases if not words.several]
    parts += (several.format(n) if n > 1 else singular[several] for several, n in counts.items())
    if syntaxes:
        how_many = "a call" if len(syntaxes) == 1 else f"{len(syntaxes)} calls"
        parts.insert(0, f"{how_many} rescued from text ({', '.join(dict.fromkeys(syntaxes))})")
    return escape(", ".join(dict.fromkeys(parts)))


def attempt_sentence(kind: str) -> str:
    return WORDS.attempts.get(kind, f"Retried in another way ({cut(kind)}).")


def problem_sentence(defect: str | None, error: str | None) -> str:
    """Describe the problem of an attempt in a sentence; "" if there was none."""
    if error is not None:
        return WORDS.errors.get(error, WORDS.errors["failed"])
    return sentences([facts.RejectedReply(defect)])[0] if defect is not None else ""


def cut(text: str, longest: int = 200) -> str:
    """Escape foreign text, and cut it to `longest` characters."""
    return escape(facts.cut(text, longest))


def escape(text: str) -> str:
    """Escape foreign text as one line; backslashes are doubled, so it can be decoded again."""
    return _escape(text.replace("\\", "\\\\"), unescaped="")


def visible(text: str, *, has_lines: bool = False) -> str:
    """Escape foreign text for a terminal: one line, unless it `has_lines`.

    Escapes control characters, ANSI and bidi sequences, and line breaks, which could forge a line.
    A text that is escaped twice is equal to the text that is escaped once.
    """
    return _escape(text, _HARMLESS + "\n\t" if has_lines else _HARMLESS)


def _escape(text: str, unescaped: str) -> str:
    if text.isprintable():
        return text
    return "".join(
        character
        if character.isprintable() or character in unescaped
        else character.encode("unicode_escape").decode()
        for character in text
    )


def visible_json(value: JsonValue, *, indent: int = 2) -> str:
    """Write a value as JSON with invisible characters escaped; `indent` 0 writes one line."""
    text = json.dump_text(value)
    if indent:
        text = msgspec.json.format(text, indent=indent)
    if text.isprintable():
        return text
    return "".join(
        character
        if character.isprintable() or character == "\n"
        else encode_basestring_ascii(character)[1:-1]
        for character in text
    )
