"""Elements within elements, each tag behind a token that cannot be part of a value.

An element with elements in it is an object, one that occurs several times a list.
"""

import re
from dataclasses import dataclass, field

from proxy.conversation.json import JsonObject, JsonValue
from proxy.guardrails.rescue.values.cursor import Cursor, Waiting
from proxy.guardrails.rescue.values.literals import literals_of
from proxy.guardrails.rescue.values.written import Problem, Unreadable

_TAG_NAME = re.compile(r"[\w.-]+")
_DEPTH_LIMIT = 64
_WRAPPER = "tool_call"  # behind a token it is never an element
_MISFIT = Unreadable(Problem.UNEXPECTED)


@dataclass(slots=True)
class _Open:
    """An element that has not been closed: the text in it so far, and the elements."""

    name: str
    text: str = ""
    members: JsonObject = field(default_factory=dict)

    @property
    def is_text(self) -> bool:
        return bool(self.text.strip())

    def put(self, name: str, value: JsonValue) -> None:
        """Add an element; the second one of a name makes a list."""
        if name not in self.members:
            self.members[name] = value
            return
        known = self.members[name]
        self.members[name] = [*known, value] if isinstance(known, list) else [known, value]


def read_nested(cursor: Cursor, token: str, name: str, end: str) -> Waiting[JsonValue | Unreadable]:
    """Read what stands in the element `name`, from behind its tag to behind its closing tag.

    `token` stands before every tag. The closing tag may be missing before another element and
    before `end`, which closes what stands around, if the element holds text only. Where the tags
    do not fit, nothing can be read.
    """
    stack = [_Open(name)]
    while len(stack) <= _DEPTH_LIMIT:
        innermost = stack[-1]
        innermost.text += yield from cursor.take_until(literals_of(token))
        is_over = yield from cursor.is_next(end)
        if len(stack) == 1 and innermost.is_text and not innermost.members:
            is_over = is_over or (yield from _is_opening(cursor, token))
        if is_over or not (yield from cursor.literal(f"{token}<")):
            is_whole = is_over and len(stack) == 1 and not innermost.members
            return innermost.text if is_whole else _MISFIT
        is_closing = yield from cursor.literal("/")
        tag = yield from cursor.take(_TAG_NAME)
        if tag in ("", _WRAPPER) or not (yield from cursor.literal(">")):
            return _MISFIT
        if not is_closing:
            stack.append(_Open(tag))
        elif tag != innermost.name or (innermost.members and innermost.is_text):
            return _MISFIT
        elif len(stack) == 1:
            return innermost.members or innermost.text
        else:
            stack.pop()
            stack[-1].put(tag, innermost.members or innermost.text)
    return _MISFIT


def _is_opening(cursor: Cursor, token: str) -> Waiting[bool]:
    is_tag = yield from cursor.is_next(f"{token}<")
    return is_tag and not (yield from cursor.is_next(f"{token}</"))
