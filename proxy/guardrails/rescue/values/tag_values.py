r"""Decodes values in tags: XML entities, line ends at the tags, and closing tags inside a value.

Some models write values on separate lines, and sometimes omit one of the two line ends around a
value. Other models write values directly between the tags, so a line end before the closing tag is
part of the value. The other values of the same call show which of the two a model does.

    <parameter=path>\n/a</parameter>      the value is "/a"
    <parameter=text>a\nb\n</parameter>    the value is "a\nb\n"

A model that writes about its own syntax may write closing marks inside a value. A pair of marks
that closes a value and its call is text if other text follows on the same line and the same pair
occurs again before any other mark. A single mark that closes a call is text if the text after it
contains more closing than opening marks of values, because the value is then still open. In the
first line below, the first pair of marks is text:

    <parameter=text>Close it with </parameter></function> on a line.</parameter></function>
    <parameter=path>/a</parameter></function>
"""

import re
from functools import lru_cache
from html import unescape

from proxy.conversation.json import JsonObject
from proxy.guardrails.rescue.marks import contains_mark
from proxy.guardrails.rescue.values.cursor import Cursor, Waiting

_ENTITY = re.compile(r"&(?:lt|gt|amp|quot|apos|#39|#34|#x27|#x22);")
# A `<`, `>` or `&` that is not written as an entity.
_UNESCAPED = re.compile(r"[<>]|&(?!(?:lt|gt|amp|quot|apos|#39|#34|#x27|#x22);)")
_QUOTES = {'"': ("&quot;", "&#34;", "&#x22;"), "'": ("&apos;", "&#39;", "&#x27;")}


def unescape_entities(text: str) -> str:
    """Unescape text in which every special character of XML is escaped; return other text as is.

    A value with both `&lt;` and `<` is returned as is, because it is markup or code that contains
    literal entities.
    """
    if not _ENTITY.search(text) or _UNESCAPED.search(text):
        return text
    for quote, entities in _QUOTES.items():
        if quote in text and any(entity in text for entity in entities):
            return text
    return unescape(text)


def remove_doubled_end(text: str, end: str) -> str:
    """Remove the closing mark `end` that a model wrote twice (llama-swap#856).

    A value with other tags is returned unchanged, because the mark may close one of these tags.
    """
    body, mark, after = text.partition(end)
    is_doubled = mark and body.strip() and not after.strip() and "<" not in body
    return body if is_doubled else text


class LineEnds:
    """Removes the line ends between tags and values, for the values of one call.

    `has_lines`: the models of this format normally write values on separate lines.
    """

    def __init__(self, *, has_lines: bool) -> None:
        self._has_lines = has_lines
        self._is_inline = False
        self._shortened: dict[str, str] = {}

    def trim(self, key: str, text: str) -> str:
        """Return a value without the line ends at its tags, and without the end tag `</key>`."""
        # A model may also write a closing tag for the key: `<parameter=a>1</a></parameter>`.
        closing = f"</{key}>"
        if text.rstrip().endswith(closing) and f"<{key}" not in text:
            text = text.rstrip().removesuffix(closing)
        has_first_end, has_last_end = text[:1] == "\n", text[-1:] == "\n"
        if has_first_end and (has_last_end or self._has_lines):
            return text[1:].removesuffix("\n")
        self._is_inline |= not has_first_end and not has_last_end and bool(text)
        body = text[:-1]
        if has_first_end or not has_last_end or not self._has_lines or "\n" in body:
            return text
        self._shortened[key] = body
        return body

    def restore(self, arguments: JsonObject) -> None:
        """Restore removed line ends if the model wrote another value directly between its tags."""
        for key, body in self._shortened.items():
            if self._is_inline and arguments[key] == body:
                arguments[key] = f"{body}\n"


# A decision needs the text after a mark, so a stream is delayed by at most this many characters.
_LOOKAHEAD = 240
_LONG_LOOKAHEAD = 2_000


def is_pair_text(cursor: Cursor, first: str, second: str) -> Waiting[bool]:
    """Return whether the pair of marks `first` and `second` is text of the value.

    `first` has just been consumed, and `second` comes next.
    """
    while True:
        text, is_all = cursor.look_ahead(_LOOKAHEAD, len(second))
        line = text.lstrip(" \t")
        if line and line[0] in "\r\n<[{|`":
            return False
        if line and (pair := _pair(first, second).search(text)):
            return not contains_mark(text[: pair.start()])
        if is_all:
            return False
        yield


def is_surplus_end(cursor: Cursor, opening: str, end: str) -> Waiting[bool]:
    """Return whether the next 2,000 characters close more values than they open.

    This waits until all these characters have arrived, or the reply has ended.
    """
    while True:
        text, is_all = cursor.look_ahead(_LONG_LOOKAHEAD)
        if is_all:
            return text.count(end) > text.count(opening)
        yield


@lru_cache(maxsize=256)
def _pair(first: str, second: str) -> re.Pattern[str]:
    return re.compile(rf"{re.escape(first)}\s*{re.escape(second)}")
