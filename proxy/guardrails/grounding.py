"""Finds invented values of a call, and values of the request that no call has used.

A value is invented if it occurs nowhere in the conversation. A model that has completed its work
sometimes calls a tool anyway, with invented values, such as an event "Meeting" or a mail to
`user@example.com` (Qwen2.5-Coder 1.5B in 6 of 24 tasks). A tool with an effect then does something
that was never requested.

`find_invented_values` returns the invented values of a call. `find_open_values` returns the values
that the request names and no call has used yet. As long as there are open values, `judge_progress`
considers the request not done.
"""

import re
from collections.abc import Iterator, Sequence
from enum import Enum
from functools import cached_property
from itertools import islice

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.tools import Tool, properties_of
from proxy.guardrails.executed_calls import is_observing
from proxy.guardrails.offer import OfferedTools
from proxy.guardrails.unparsed_calls.words import is_placeholder

_ADDRESS = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+")
_WORD = re.compile(r"[^\W_]{2,}")
# Values in a request: quoted texts, addresses, paths, numbers, and capitalized words within a
# sentence.
_VALUE = re.compile(
    r"""(?<!\w)(?P<quote>['"`])(?P<quoted>[^'"`\n]{2,60})(?P=quote)(?!\w)
    |[\u201c\u2018\u00ab](?P<curly>[^\u201d\u2019\u00bb\n]{2,60})[\u201d\u2019\u00bb]
    |(?<![\w.+-])(?P<plain>[\w.+-]+@[\w-]+\.[\w.-]+|\w[\w.-]*(?:/[\w.-]+)+|\d[\d.:]*
        |(?<=[a-z,;][ ])[A-Z][\w-]+)""",  # matches start only where a token starts: linear time
    re.VERBOSE,
)
# Placeholders that the model did not fill in: "The deadline is on [insert date]" and
# "C:/Users/YourName" (Qwen2.5-Coder 0.5B). Longer texts may be templates or code that the user
# wants.
_GAP = re.compile(
    r"(?=[^\n]{1,100}\Z)[^\n]*?(?P<gap>[\[<{(](?i:insert|enter|add|your)\b[^\]>})]{0,60}[\]>})])"
    r"|(?=\S{1,100}\Z)\S*?\b(?P<part>(?i:your)(?:[A-Z][a-z]+|[_-][a-z]+)+|path/to/)"
)
# A dummy number or id, such as `12345` or `note_1234`.
_COUNTED = re.compile(
    r"(?:[a-z]{2,8}[-_ #]?)?(?:0?12345?6?7?8?9?0?|987654(?:321)?0?)", re.IGNORECASE
)
# A value with more words is prose that the model wrote. Most words of prose are not in the request,
# so the strict rule applies only to shorter values.
_FEW_WORDS = 6
_SHORTEST = 3  # letters; shorter words occur in any text
# English words that occur in any text. A value that shares only these words with the conversation
# may still be invented.
_IN_ANY_TEXT = frozenset(
    (
        *("the", "and", "for", "with", "from", "this", "that", "you", "your", "are", "was", "have"),
        *("has", "will", "not", "all", "can", "about", "new", "any", "our", "its", "into", "when"),
        *("please", "here", "what", "then", "there", "been", "use", "using"),
    )
)
# Words next to the name of a parameter that are never its value.
_NEXT_TO_ANY = _IN_ANY_TEXT | frozenset(
    (
        *("a", "an", "in", "is", "it", "its", "of", "on", "to", "by", "or", "at", "as", "be", "if"),
        *("named", "called", "titled", "same", "other", "right", "next", "last", "first", "given"),
        *("where", "which", "should", "would", "must", "does", "do", "only", "name", "but", "each"),
    )
)
# A word after the name of a parameter ("folder bills"), or before it ("the finance folder").
_AFTER = re.compile(r"\b(?P<name>\w+)(?=[ ]+(?P<value>[a-z][\w-]+))")
_BEFORE = re.compile(r"\bthe[ ]+(?P<value>[a-z][\w-]+)[ ]+(?P<name>\w+)\b")
_LONGEST_JOINED = 60
_LETTERS = re.compile(r"[^\W\d_]+")
_VERB = re.compile(r"[A-Z]?[a-z]{2,}")
_STEM = 4  # letters that inflected forms of a word share
_MOST_WORDS = 60


def find_invented_values(tool: Tool, arguments: JsonObject, offer: OfferedTools) -> tuple[str, ...]:
    """Return the values that the model invented; () if the conversation may contain them.

    An address or a placeholder is invented if it occurs nowhere in the conversation. After tools
    have run, the values of a tool with an effect are also invented if none of them shares a word
    with the conversation. When the request is done, the rule is stricter: a short value must share
    more than half of its words. Values that the schema lists are ignored.
    """
    values = [*_undeclared_strings(arguments, tool.parameters)]
    conversation = _Conversation(offer)
    invented = [
        value for value in values if (part := _invented_part(value)) and not conversation.has(part)
    ]
    if invented or is_observing(tool.name) or not offer.executed:
        return tuple(invented)
    is_done = judge_progress(offer) is Progress.DONE
    is_known = any(conversation.shares_words_with(value, is_strict=is_done) for value in values)
    return () if is_known else tuple(values)


def _invented_part(value: str) -> str:
    """Return the address or the placeholder that a value contains, or ""."""
    text = value.strip()
    if _ADDRESS.fullmatch(text) or _COUNTED.fullmatch(text) or is_placeholder(text):
        return text
    gap = _GAP.match(text)
    return (gap["gap"] or gap["part"]) if gap else ""


class Progress(Enum):
    """The progress of the user's last request, judged by the values that calls have used."""

    OPEN = "open"
    DONE = "done"
    UNKNOWN = "unknown"


def judge_progress(offer: OfferedTools) -> Progress:
    if find_open_values(offer):
        return Progress.OPEN
    values = _list_values(offer.request)
    if _are_numbers(values):  # a call may have used the numbers in another form
        return Progress.UNKNOWN
    return Progress.DONE if offer.executed else Progress.UNKNOWN


def find_open_values(offer: OfferedTools) -> tuple[str, ...]:
    """Return the values that the user's last message names and no later call has used.

    These are quoted texts, addresses, paths, numbers, names with a capital letter within a
    sentence, and words next to the name of a parameter ("the folder bills"). A tool with an effect
    is also listed if the message contains its verb ("and delete it"). When a nudge named these
    values, Qwen2.5-Coder 0.5B took the next step in 5 of 5 tasks; without the values it did so in
    none.
    """
    request = offer.request
    if not request:
        return ()
    used = " ".join(
        f"{call.name} {json.dump_text(call.arguments)} {call.result}"
        for call in offer.executed
        if not call.has_failed
    ).casefold()
    named = dict.fromkeys(
        (
            *_list_values(request),
            *_list_named_by_parameters(request, offer),
            *_list_joined(request, offer),
        )
    )
    values = [value for value in named if not _is_used(value.casefold(), used)]
    steps = _list_open_steps(request, offer)
    return () if _are_numbers(values) and not steps else (*values, *steps)


def _list_named_by_parameters(request: str, offer: OfferedTools) -> list[str]:
    """List the words next to the name of a parameter, as in "the finance folder"."""
    names = {name for tool in offer.tools for name in properties_of(tool.parameters)}
    names = {name for name in names if name.isalpha() and len(name) >= _SHORTEST}
    words = [match["value"] for match in _AFTER.finditer(request) if match["name"] in names]
    words += [match["value"] for match in _BEFORE.finditer(request) if match["name"] in names]
    return [word for word in words[:20] if word not in _NEXT_TO_ANY and word not in names]


def _list_joined(request: str, offer: OfferedTools) -> list[str]:
    """List the words that "and" joins to a value of a call: "in the hall and in the garage"."""
    values = {
        value.strip()
        for call in offer.executed
        if isinstance(call.arguments, dict)
        for value in call.arguments.values()
        if isinstance(value, str) and _SHORTEST <= len(value.strip()) <= _LONGEST_JOINED
    }
    if not values:
        return []
    known = sorted(values, key=len, reverse=True)[:_MOST_WORDS]  # long patterns compile slowly
    listed = "|".join(map(re.escape, known))
    joined = re.compile(
        rf"\b(?i:{listed}),?[ ](?:and|or)[ ](?:(?:in|for|to|of|from|on|at)[ ])?(?:the[ ])?"
        r"(?P<word>[\w.-]*\w)(?=[ ]*(?:[.,;:?!)]|\Z|(?:and|or)\b))"
    )
    words = [match["word"] for match in islice(joined.finditer(request), 20)]
    return [word for word in words if len(word) >= _SHORTEST and word not in _NEXT_TO_ANY]


def _list_open_steps(request: str, offer: OfferedTools) -> list[str]:
    """List the tools with an effect that have not run although the request contains their verb."""
    words = {word.casefold() for word in islice(_LETTERS.findall(request), _MOST_WORDS * 4)}
    executed = {call.name for call in offer.executed if not call.has_failed}
    return [
        tool.name
        for tool in offer.tools
        if tool.name not in executed
        and not is_observing(tool.name)
        and (verb := _VERB.match(tool.name)) is not None
        and verb[0].casefold() in words
    ]


def _list_values(text: str) -> list[str]:
    values: dict[str, None] = {}
    for match in islice(_VALUE.finditer(text), _MOST_WORDS):
        value = match["quoted"] or match["curly"] or match["plain"]
        values[value.strip(" .,:;!?")] = None
    return [value for value in values if value]


def _are_numbers(values: Sequence[str]) -> bool:
    """Return whether all values are numbers.

    A call may contain a number of the request in another form: 18 for "6 in the evening".
    """
    return all(value[0].isdigit() for value in values)


def _is_used(value: str, used: str) -> bool:
    """Return whether a value or its abbreviation, such as "mon", occurs in the used values.

    Enumerations of tools abbreviate days and months to three letters.
    """
    return value in used or (value.isalpha() and f'"{value[:3]}"' in used)


class _Conversation:
    """The texts of a conversation that the model did not write."""

    def __init__(self, offer: OfferedTools) -> None:
        self._offer = offer

    @cached_property
    def _text(self) -> str:  # computed when first needed, which is seldom
        offer = self._offer
        return "\n".join((*offer.user_texts, *offer.results, *offer.instructions)).casefold()

    def has(self, value: str) -> bool:
        return value.strip().casefold() in self._text

    def shares_words_with(self, value: str, *, is_strict: bool) -> bool:
        if self.has(value):
            return True
        stems = [[*_stems(word.casefold())] for word in _WORD.findall(value)[:_MOST_WORDS]]
        known = [any(part in self._text for part in parts) for parts in stems if parts]
        if is_strict and len(known) <= _FEW_WORDS:
            return 2 * sum(known) > len(known)
        return any(known)


def _stems(word: str) -> Iterator[str]:
    """Yield the stem of a word; for a word that is not ASCII, yield each pair of its letters."""
    if word.isascii():
        if len(word) >= _SHORTEST and word not in _IN_ANY_TEXT:
            yield word[: max(_STEM, len(word) - 3)]
        elif word.isdigit():
            yield word
        return
    for start in range(len(word) - 1):
        yield word[start : start + 2]


def _undeclared_strings(value: JsonValue, schema: JsonValue) -> Iterator[str]:
    """Yield all strings in a value, except those that the schema declares."""
    known = schema if isinstance(schema, dict) else {}
    match value:
        case dict():
            members = properties_of(known)
            for name, member in value.items():
                yield from _undeclared_strings(member, members.get(name))
        case list():
            for item in value:
                yield from _undeclared_strings(item, known.get("items"))
        case str() if value.strip() and not _is_declared(value, known):
            yield value
        case _:
            pass


def _is_declared(value: str, schema: JsonObject) -> bool:
    listed = schema.get("enum")
    is_listed = isinstance(listed, list) and value in listed
    return is_listed or value in (schema.get("const"), schema.get("default"))
