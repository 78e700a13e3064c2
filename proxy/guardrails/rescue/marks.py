"""Recognizes the marks around calls: openings, ends, and control tokens that leak.

All marks are derived from the table `formats.toml`, so a new format only needs a row in this table
(decision 0030). If the end of a value is missing or uncertain, the value may contain the next call.
`contains_mark` detects a mark in the value, and the call is then rejected.
"""

# ruff: noqa: RUF001 - the control tokens of DeepSeek and Step have a fullwidth bar

import re
from collections.abc import Collection, Iterator
from functools import cache
from itertools import chain

from proxy.guardrails.rescue.formats import TABLE
from proxy.guardrails.rescue.rows import FENCE
from proxy.guardrails.rescue.values.cursor import (
    Cursor,
    LooseLiterals,
    Waiting,
    fold_mark,
)

# The rows of calls. The rows of messages to the user are excluded, because their content is an
# answer.
_ROWS = tuple(row for row in TABLE.formats if row.is_marked and row.shape != "quoted")
_BRACKETS = tuple(pair for row in _ROWS for pair in row.brackets)
_TAG = re.compile(r"<(?:\w+[:|])?(\w+)")
# The words in the tags of calls. A tag with one of these words is not the tag of an argument.
TAGS = frozenset(tag for opening, _ in _BRACKETS for tag in _TAG.findall(opening))
TAGS = (TAGS | TABLE.more_tags) - TABLE.ordinary_tags
# Control tokens that end a turn or introduce calls, and leak into the text.
SPECIAL_TOKENS = TABLE.turn_ends | TABLE.turn_begins
SPECIAL_TOKENS |= {opening for row in _ROWS for opening in row.sections}
# Qwen2.5-Coder 0.5B writes the end of a result block after a call, where it has no meaning.
RESULT_ENDS = frozenset(TABLE.results.values()) - SPECIAL_TOKENS
_ORDINARY = {f"</{tag}>" for tag in TABLE.ordinary_tags}
_SIGNS = re.compile(r"<|\[/|\]<")  # the start of each mark that is no bracket, fence or word
# Closing marks that models write twice, or without the opening mark.
STRAY_CLOSERS = frozenset(end for _, end in _BRACKETS if _SIGNS.match(end)) - _ORDINARY
STRAY_CLOSERS = (STRAY_CLOSERS | TABLE.more_closers | RESULT_ENDS) - SPECIAL_TOKENS
REASONING, ANSWERS, RESULTS = TABLE.reasoning, TABLE.answers, TABLE.results
THOUGHT_ENDS = frozenset(REASONING.values())
CONTROL_BEGINNINGS = TABLE.control_beginnings
LONGEST_CLOSER = max(map(len, STRAY_CLOSERS))
# Marks that prose does not contain by accident: control tokens, `[TOOL_CALLS]`, tags with `call`.
_WHOLE = re.compile(
    r"(?:\]<\]\w+\[>\[)?</?(?:\w+[:|])?\w*call\w*>|</?[|｜].*[|｜>]\w*|\[/?\w*CALLS?\]",
    re.IGNORECASE,
)
_INNER = chain.from_iterable(chain.from_iterable(row.parts.values()) for row in _ROWS)
_ALL = frozenset((*chain.from_iterable(_BRACKETS), *_INNER))
CALL_TOKENS = frozenset(mark for mark in _ALL if _WHOLE.fullmatch(mark))
# Openings that end before a name or a value. If a reply ends with one of them, it was cut off.
HALF_OPENINGS = frozenset(
    opening for opening, _ in _BRACKETS if re.fullmatch(r"[<\[].*(?:=\"?|[:.])", opening)
)
_RESULT_ENDS = {fold_mark(begin): end for begin, end in RESULTS.items()}
_FOLDED_THOUGHT_ENDS = frozenset(map(fold_mark, THOUGHT_ENDS))
# Marks that the scanner searches for in addition to the openings of calls.
LOOSE_MARKS = LooseLiterals((*RESULTS, *THOUGHT_ENDS))
_WORDS = "|".join(sorted(TAGS, key=lambda tag: (-len(tag), tag)))
# Gemma's quotation mark `<|"|>` looks like a control token, but is part of values.
_TAG_BEGINS = rf"<(?:\w+[:|])?(?:{_WORDS})\b|<[|｜](?!\"\|>)"
_PLAIN_WORD = re.compile(r"[\w.]+")


def _shortest(texts: set[str]) -> list[str]:
    """Return the texts that contain no other text of the set.

    A search for these texts also finds every longer text of the set.
    """
    return [text for text in sorted(texts) if not any(other in text for other in texts - {text})]


def _other_marks() -> Iterator[str]:
    """Yield patterns for those marks of calls that are neither tags nor control tokens."""
    for row in _ROWS:
        follows = rf"\s*[{re.escape(row.next)}]" if row.next else ""
        inner = chain(row.marks.values(), *row.parts.values())
        for mark in (*map(str.strip, row.openings), *(mark for mark in inner if mark[:1] == "[")):
            is_known = re.search(_TAG_BEGINS, mark) or (_PLAIN_WORD.fullmatch(mark) and not follows)
            if not is_known:
                yield re.escape(mark) + follows
    begins = (mark.strip() for mark in CONTROL_BEGINNINGS)
    yield from (re.escape(mark) for mark in begins if not re.search(_TAG_BEGINS, mark))


# The start of a call in plain JSON, such as `{"name":` or `{"tool_calls":`.
_KEYS = (*TABLE.envelope.names, "tool_calls")
_ENVELOPE = rf"\{{\s*[\"'](?:{'|'.join(_KEYS)})[\"']\s*:"
_MARK = re.compile("|".join((_TAG_BEGINS, *_shortest({*_other_marks()}))))
_CALL = re.compile(rf"{_MARK.pattern}|{_ENVELOPE}")
_JSON_BEGINS = re.compile(r"\{(?:\s*(?:[\"'}]|\Z))|\[(?:\s*(?:[\[{\"'\d\]]|\Z))")
_ENVELOPE_START = re.compile(_ENVELOPE)
_PLAIN_CALL = re.compile(rf"\[?\s*{_ENVELOPE}")
_ENVELOPE_BEGINS = re.compile(r"\[?\s*(?:\{\s*(?:[\"']\w{0,16}(?:[\"']\s*)?)?)?\Z")
# The start of a call in plain JSON up to the name of the tool, perhaps in a code fence.
_NAMED_CALL = re.compile(rf"(?:```\w*\s*)?(?:\[\s*)?{_ENVELOPE}\s*[\"'](?P<name>[^\"']+)[\"']")
# The marks that close a call, or end a reply.
_CLOSING = rf"</(?:\w+[:|])?(?:{_WORDS})\b|</?[|｜]|{FENCE}|[\]}})]"
_ENDS = sorted(STRAY_CLOSERS - RESULT_ENDS - THOUGHT_ENDS | TABLE.turn_ends)
_OTHER_ENDS = (re.escape(end) for end in _ENDS if not re.match(_CLOSING, end))
CLOSING = re.compile("|".join((_CLOSING, *_OTHER_ENDS)))


# The beginning of a closing tag with a namespace, `</minimax:`. Any tag with this beginning ends a
# value.
_NAMESPACE = re.compile(r"</\w+[:|]")


def _value_ends() -> list[str]:
    """Return the beginnings of the marks that end a value in tags, or that end a call."""
    closers = (end.removesuffix(">") for _, end in _BRACKETS if end.startswith("</"))
    ends = {match[0] if (match := _NAMESPACE.match(end)) else end for end in closers}
    ends |= {f"<{slash}{bar}" for slash in ("", "/") for bar in "|｜"}
    return _shortest(ends)


VALUE_ENDS = tuple(_value_ends())


@cache
def loose_literals(*texts: str) -> LooseLiterals:
    """Prepare marks when first needed; preparing all marks of the table would delay the start."""
    return LooseLiterals(texts)


def result_end(mark: str) -> LooseLiterals | None:
    """Return the closing mark of a result that begins with `mark`; None for other marks."""
    end = _RESULT_ENDS.get(fold_mark(mark)) if mark else None
    return None if end is None else loose_literals(end)


def ends_thoughts(mark: str) -> bool:
    return fold_mark(mark) in _FOLDED_THOUGHT_ENDS


def contains_mark(text: str) -> bool:
    """Return whether a text contains an opening mark of a call, or a control token."""
    return _MARK.search(text) is not None


def contains_remnant(text: str) -> bool:
    """Return whether a text contains an opening mark, or an end of a call without its beginning."""
    is_open = text.rstrip().endswith("}}") and text.count("}") > text.count("{")
    return is_open or contains_mark(text) or any(end in text for end in STRAY_CLOSERS)


def contains_call(text: str) -> bool:
    """Return whether a text contains an opening mark, or the beginning of a call in plain JSON."""
    return _CALL.search(text) is not None


def contains_block(text: str) -> bool:
    """Return whether a text contains the beginning of a result or the end of reasoning."""
    return LOOSE_MARKS.find(text, 0, is_finished=True) < len(text)


def begins_envelope(text: str) -> bool:
    """Return whether a text begins with the envelope of a call in JSON, or of a list of calls."""
    return _PLAIN_CALL.match(text) is not None


def envelope_starts(text: str) -> list[int]:
    """Return the indexes at which envelopes of calls in plain JSON begin."""
    return [match.start() for match in _ENVELOPE_START.finditer(text)]


def begins_plain_call(text: str, names: Collection[str]) -> bool:
    """Return whether a text, perhaps in a code fence, begins with a JSON call of a known tool."""
    match = _NAMED_CALL.match(text.lstrip())
    return match is not None and match["name"] in names


def begins_json(text: str) -> bool:
    """Return whether a text begins like an object or a list in JSON; `{noformat}` does not."""
    return _JSON_BEGINS.match(text) is not None


def is_no_envelope(text: str) -> bool:
    """Return False if the text may be the beginning of a call's envelope, otherwise True."""
    return _ENVELOPE_BEGINS.match(text) is None and not begins_envelope(text)


# Labels that models write before a copied or invented result, such as "Observation: {...}".
_ARTICLES = ("", "the ", "here is the ", "tool ", "the tool ", "function ", "das ", "el ", "la ")
_OUTPUTS = (
    *("observation", "output", "result", "response", "tool", "function", "user", "ipython"),
    *("ergebnis", "ausgabe", "resultado", "salida", "respuesta", "结果", "返回结果", "工具结果"),
)
_LABELS = tuple(article + output for article in _ARTICLES for output in _OUTPUTS)
_LABEL_WORDS = rf"(?:{'|'.join(sorted(_LABELS, key=len, reverse=True))})s?"
_LABEL_REST = r"(?:[ ](?:is|was|of|from|result|output|response|ist|es))?(?:[ ]\w{1,60})?[ ]*"
_LABEL = re.compile(rf"{_LABEL_WORDS}{_LABEL_REST}(?:[:：]|(?=\n))\s*", re.IGNORECASE)
_LABEL_BEGINS = re.compile(rf"{_LABEL_WORDS}(?:[ ]\w{{0,60}}){{0,2}}[ ]*\Z", re.IGNORECASE)
_FENCE_BEGINS = re.compile(r"`{1,3}\w*\s*\Z")
_FENCED = re.compile(r"```(?:json)?\s*")


def strip_label(text: str) -> str:
    """Return a text without the label of a result before its JSON."""
    match = _LABEL.match(text)
    return text[match.end() :] if match else text


def may_be_label(text: str) -> bool:
    """Return whether a text may be the beginning of a label, or of the JSON after a label."""
    if match := _LABEL.match(text):
        after_label = text[match.end() :]
        return not after_label or _FENCE_BEGINS.match(after_label) is not None
    begins = text.casefold()
    is_word = bool(begins) and any(label.startswith(begins) for label in _LABELS)
    return is_word or _LABEL_BEGINS.match(text) is not None


def begins_result(text: str, *, is_all: bool) -> bool | None:
    """Return whether a text begins with a result in JSON; None if more text is needed.

    The result may have a label and may be in a code fence. The envelope of a call is not a result.

        Observation: {"ok": true}
        Here is the result:
        ```json
        [1, 2]
        ```
    """
    unlabeled = strip_label(text)
    fence = _FENCED.match(unlabeled)
    content = unlabeled[fence.end() :] if fence else unlabeled
    if begins_json(content):
        if begins_envelope(content):
            return False
        return True if is_all or is_no_envelope(content) else None
    may_become = may_be_label(text) or (_FENCE_BEGINS.match(unlabeled) is not None)
    return None if may_become and not is_all else False


OBSERVATION = "Observation:"


def begins_react_result(text: str, *, is_all: bool) -> bool | None:
    """Return whether a text begins with a result in ReAct; None if more text is needed."""
    if text.startswith(OBSERVATION):
        return True
    return None if not is_all and OBSERVATION.startswith(text) else False


# An unknown control token or a code fence at the end of a reply, and the beginnings of both.
_TOKEN = re.compile(r"(?:<[|｜][^\s<>|｜]+[|｜]>|```)\s*")
_TOKEN_BEGINS = re.compile(r"<(?:[|｜](?:[^\s<>|｜]+(?:[|｜](?:>\s*)?)?)?)?|``?|```\s*")


def find_closer(literal: str | None, text: str, *, is_all: bool) -> str | None:
    """Return the stray closing mark with which `text` begins; "" if there is none.

    `literal` is the mark that the scanner has found at the start of `text`. Returns None if more
    text is needed. At the end of a reply (`is_all`), an incomplete mark, an unknown control token
    or a code fence is also returned, because no sentence ends with these.
    """
    if literal is None or ends_thoughts(literal):
        return None if literal is None else ""
    if literal and literal != FENCE:
        return literal if literal in STRAY_CLOSERS else ""
    if is_all and len(text) > 1 and any(closer.startswith(text) for closer in STRAY_CLOSERS):
        return text
    if _TOKEN_BEGINS.fullmatch(text) is None:
        return ""
    is_token = len(text) < LONGEST_CLOSER and _TOKEN.fullmatch(text) is not None
    return (text if is_token else "") if is_all else None


_SHORTEST = 2  # `<` alone may be "less than"


def is_half_closer(text: str) -> bool:
    """Return whether a text is an incomplete closing mark of at least two characters."""
    return len(text) >= _SHORTEST and any(
        closer.startswith(text) and closer != text for closer in STRAY_CLOSERS
    )


def ends_here(cursor: Cursor) -> Waiting[bool]:
    """Return whether the text ends here, or within a closing mark that begins here."""
    while True:
        text, is_all = cursor.look_ahead(LONGEST_CLOSER)
        if is_all and text:
            return is_half_closer(text)
        if is_all:
            return True
        if text and not any(closer.startswith(text) for closer in STRAY_CLOSERS):
            return False
        yield
