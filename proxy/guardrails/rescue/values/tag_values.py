"""Values in tags: XML entities, line ends at the tags, and closing tags that are text.

A model that writes values on lines of their own sometimes omits one of the two line ends. A model
that writes them directly between the tags means a line end before the closing tag. The lines of the
value and the other values of the call show which kind of model it is.

A model that writes about its own syntax may write closing marks inside a value. The text after them
decides: two marks are text if their line continues and both occur again; the mark of a call is text
if more values end after it than begin. These are two values, one of each kind:

    <parameter=text>Close it with </parameter></function> on a line.</parameter></function>
    <parameter=path>/a</parameter></function>
"""

import re
from functools import lru_cache
from html import unescape

from proxy.conversation.json import JsonObject
from proxy.guardrails.rescue.marks import holds_mark
from proxy.guardrails.rescue.values.cursor import Cursor, Waiting

_ENTITY = re.compile(r"&(?:lt|gt|amp|quot|apos|#39|#34|#x27|#x22);")
_UNESCAPED = re.compile(r"[<>]|&(?!(?:lt|gt|amp|quot|apos|#39|#34|#x27|#x22);)")
_QUOTES = {'"': ("&quot;", "&#34;", "&#x22;"), "'": ("&apos;", "&#39;", "&#x27;")}


def unescape_entities(text: str) -> str:
    """Unescape text if everything that XML has to escape was escaped; else return it as is.

    A value with both `&lt;` and `<` is markup or code, in which entities are meant literally.
    """
    if not _ENTITY.search(text) or _UNESCAPED.search(text):
        return text
    for quote, entities in _QUOTES.items():
        if quote in text and any(entity in text for entity in entities):
            return text
    return unescape(text)


def without_doubled_end(text: str, end: str) -> str:
    """Return a value without its closing mark, which the model wrote twice (llama-swap#856).

    If the text has other tags, the mark may close one of them, and is left.
    """
    body, mark, rest = text.partition(end)
    is_doubled = mark and body.strip() and not rest.strip() and "<" not in body
    return body if is_doubled else text


class LineEnds:
    """The line ends of one call's values.

    If the family `has_lines`, it normally writes values on lines of their own.
    """

    def __init__(self, *, has_lines: bool) -> None:
        self._has_lines = has_lines
        self._is_inline = False
        self._shortened: dict[str, str] = {}

    def trim(self, key: str, text: str) -> str:
        """Return a value without the line ends at its tags, and without the end tag `</key>`."""
        # a model may close the argument's name besides its mark: `<parameter=a>1</a></parameter>`
        closing = f"</{key}>"
        if text.rstrip().endswith(closing) and f"<{key}" not in text:
            text = text.rstrip().removesuffix(closing)
        is_apart, is_ended = text[:1] == "\n", text[-1:] == "\n"
        if is_apart and (is_ended or self._has_lines):
            return text[1:].removesuffix("\n")
        self._is_inline |= not is_apart and not is_ended and bool(text)
        body = text[:-1]
        if is_apart or not is_ended or not self._has_lines or "\n" in body:
            return text
        self._shortened[key] = body
        return body

    def restore(self, arguments: JsonObject) -> None:
        """Restore line ends if another value of the call is directly between its marks."""
        for key, body in self._shortened.items():
            if self._is_inline and arguments[key] == body:
                arguments[key] = f"{body}\n"


# A call followed by words on its line is doubtful anyway, and these words are held.
_LOOKAHEAD = 240
_LONG_LOOKAHEAD = 2_000


def is_pair_text(cursor: Cursor, first: str, second: str) -> Waiting[bool]:
    """Return whether `second`, which comes next after `first`, is still text in the value."""
    while True:
        text, is_all = cursor.look_ahead(_LOOKAHEAD, len(second))
        line = text.lstrip(" \t")
        if line and line[0] in "\r\n<[{|`":
            return False
        if line and (pair := _pair(first, second).search(text)):
            return not holds_mark(text[: pair.start()])
        if is_all:
            return False
        yield


def is_surplus(cursor: Cursor, opening: str, end: str) -> Waiting[bool]:
    """Return whether more values end than begin in the text ahead."""
    while True:
        text, is_all = cursor.look_ahead(_LONG_LOOKAHEAD)
        if is_all:
            return text.count(end) > text.count(opening)
        yield


@lru_cache(maxsize=256)
def _pair(first: str, second: str) -> re.Pattern[str]:
    return re.compile(rf"{re.escape(first)}\s*{re.escape(second)}")
