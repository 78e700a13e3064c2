"""The synthetic tool for answers in prose: offered last, never seen by the client.

Its message is decoded while the arguments are being written, so that it can be streamed. When the
tool is offered, and when its message may be shown, is decided elsewhere.
"""

import re
from collections.abc import Generator
from functools import lru_cache
from itertools import chain, count
from typing import TypeAlias

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.possessive import possessive
from proxy.conversation.tools import Tool
from proxy.guardrails.rescue.values import escapes
from proxy.guardrails.rescue.values.reader import read_whole
from proxy.guardrails.rescue.values.scalars import Value

_PARAMETER = "message"
_DESCRIPTION = (
    "Answer the user in words. Call this when no other tool is needed, or once you know the answer."
)
_PARAMETERS: JsonObject = {
    "type": "object",
    "properties": {_PARAMETER: {"type": "string", "description": "The complete answer."}},
    "required": [_PARAMETER],
    "additionalProperties": False,
}

_SPACE = re.compile(r"\s*")
_ENDS = re.compile(r"[\s}]*")
_BETWEEN_MEMBERS = re.compile(r"[\s,]*")
_BARE_KEY = re.compile(r"[^\s:,{}\[\]\"']*")
_BORING = re.compile(r"[^\"'{}\[\],]*")
# Text and whole escapes, except for halves of surrogate pairs.
_PLAIN = {
    quote: re.compile(
        possessive(
            rf"[^{quote}\\]*+(?:\\(?:[^u]|u(?![dD][89a-fA-F])[0-9a-fA-F]{{4}})[^{quote}\\]*+)*+"
        )
    )
    for quote in ('"', "'")
}
_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", '"': '"', "\\": "\\", "/": "/"}
_HEX_DIGITS = frozenset("0123456789abcdefABCDEF")
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"

_Reading: TypeAlias = Generator[None, None, None]


@lru_cache(maxsize=256)
def make_respond_tool(taken: tuple[str, ...]) -> Tool:
    """Make the tool under the first name that is not `taken` by a client's tool."""
    numbered = (f"respond_{number}" for number in count(2))
    names = chain(("respond", "respond_to_user"), numbered)
    name = next(name for name in names if name not in taken)
    function: JsonObject = {"name": name, "description": _DESCRIPTION, "parameters": _PARAMETERS}
    return Tool(name, _PARAMETERS, json.dump({"type": "function", "function": function}))


def extract_message(arguments: JsonValue) -> str:
    """Return the whole message of a finished call; a `MessageDecoder`'s output is a prefix of it.

    Broken arguments give what can be recovered; text that is not JSON is the message.
    """
    match arguments:
        case None:
            return ""
        case str():
            return _extract_from_text(arguments)
        case dict():
            return _extract_from_members(arguments)
        case _:
            return json.dump_text(arguments)


def _extract_from_text(text: str) -> str:
    try:
        value = json.parse(text)
    except ValueError:
        decoder = MessageDecoder()
        decoder.feed(text)
        if decoder.has_begun:
            return decoder.text
        match read_whole(text):
            case Value(dict() as arguments):
                return _extract_from_members(arguments)
            case _:
                return text.strip()
    return text if isinstance(value, bool | int | float | list) else extract_message(value)


def _extract_from_members(arguments: JsonObject) -> str:
    message = arguments.get(_PARAMETER)
    if isinstance(message, str):
        return message
    strings = [value for value in arguments.values() if isinstance(value, str)]
    if len(strings) == 1:
        return strings[0]
    if _PARAMETER in arguments:
        return "" if message is None else json.dump_text(message)
    return json.dump_text(arguments) if arguments else ""


class MessageDecoder:
    """Decodes the top-level string `message` of a JSON object while its text arrives.

    Like the lenient reader it accepts single quotes, bare keys, raw newlines and unescaped quotes;
    if it cannot follow, it returns nothing. The work is linear in the text.
    """

    def __init__(self) -> None:
        self.has_begun = False
        self._told: list[str] = []
        self._fresh: list[str] = []
        self._text = ""
        self._at = 0
        self._string: _StringDecoder | None = None  # the message, while it is being read
        self._reading = self._read()

    @property
    def text(self) -> str:
        return "".join(self._told)

    def feed(self, fragment: str) -> str:
        """Take more of the arguments' text; return the message's characters that it completes."""
        if self._string is not None and self._string.takes_as_it_is(fragment):
            self._told.append(fragment)
            return fragment
        self._text, self._at = fragment, 0
        next(self._reading, None)
        fresh = "".join(self._fresh)
        self._told.append(fresh)
        self._fresh.clear()
        return fresh

    def _read(self) -> _Reading:
        if (yield from self._pass(_SPACE)) != "{":
            return
        self._at += 1
        while (key := (yield from self._read_key())) is not None:
            if (yield from self._pass(_SPACE)) != ":":
                return
            self._at += 1
            first = yield from self._pass(_SPACE)
            if key == _PARAMETER:
                if first in _PLAIN:
                    self.has_begun = True
                    self._string = _StringDecoder(first, ",}")
                    yield from self._read_string(self._string, self._fresh)
                    self._string = None
                return
            yield from self._pass_value()

    def _pass(self, pattern: re.Pattern[str]) -> Generator[None, None, str]:
        """Move over everything that matches and return the next character, without consuming it."""
        while (end := end_of_run(pattern, self._text, self._at)) == len(self._text):
            yield
        self._at = end
        return self._text[end]

    def _read_key(self) -> Generator[None, None, str | None]:
        """Read the next key; None if the object ends or is unreadable."""
        key: list[str] = []
        if (yield from self._pass(_BETWEEN_MEMBERS)) in _PLAIN:
            quote = self._text[self._at]
            yield from self._read_string(_StringDecoder(quote, ":"), key)
            return "".join(key)
        while (end := end_of_run(_BARE_KEY, self._text, self._at)) == len(self._text):
            key.append(self._text[self._at :])
            yield
        key.append(self._text[self._at : end])
        self._at = end
        return "".join(key) or None

    def _read_string(self, string: "_StringDecoder", decoded: list[str]) -> _Reading:
        self._at += 1
        while not string.is_over:
            self._at = string.feed(self._text, self._at, decoded)
            if not string.is_over:
                yield

    def _pass_value(self) -> _Reading:
        depth = 0
        while (mark := (yield from self._pass(_BORING))) not in ",}" or depth:
            if mark in _PLAIN:
                yield from self._read_string(_StringDecoder(mark, ",:}]"), [])
                continue
            depth += (mark in "{[") - (mark in "}]")
            self._at += 1


class _StringDecoder:
    """Decodes the inside of one JSON string.

    A quote that is not followed by one of the `followers` was meant as a character: models forget
    to escape. If such a quote begins JSON inside the string, the JSON is followed to its last
    bracket, or to the end. Unknown escapes are kept as written, halves of surrogate pairs are
    replaced.
    """

    def __init__(self, quote: str, followers: str) -> None:
        self.is_over = False
        self._quote = quote
        self._followers = followers
        self._closing: list[str] = []
        self._escape = ""
        self._high = 0
        self._last = ""  # last character that is no space
        self._depth = 0  # of brackets of the JSON inside
        self._is_quoted = False  # within that JSON

    def takes_as_it_is(self, text: str) -> bool:
        """Take a text if all of it is literal and nothing before it is undecided."""
        if self._closing or self._escape or self._high or self._depth or self.is_over:
            return False
        if self._quote in text or "\\" in text:
            return False
        self._last = text.rstrip()[-1:] or self._last
        return True

    def feed(self, text: str, start: int, decoded: list[str]) -> int:
        """Append what can be decoded of `text` from `start`; return where it stopped."""
        at = start
        while at < len(text) and not self.is_over:
            if self._closing:
                at = self._look_behind_quote(text, at, decoded)
            elif self._escape:
                at = self._decode_escape(text, at, decoded)
            else:
                at = self._decode_plain(text, at, decoded)
        return at

    def _decode_plain(self, text: str, at: int, decoded: list[str]) -> int:
        end = end_of_run(_PLAIN[self._quote], text, at)
        if end > at:
            plain = text[at:end]
            self._count_brackets(plain)
            self._put(escapes.decode(plain, self._quote)[0] if "\\" in plain else plain, decoded)
            return end
        if text[at] == "\\":
            self._escape = "\\"
        else:
            self._closing.append(text[at])
        return at + 1

    def _look_behind_quote(self, text: str, at: int, decoded: list[str]) -> int:
        end = end_of_run(_ENDS if self._depth else _SPACE, text, at)
        if end > at:
            self._closing.append(text[at:end])
            return end
        if text[at] in self._followers and not self._depth:
            self._put("", decoded)
            self.is_over = True
            return at
        self._count_quote("".join(self._closing))
        self._put("".join(self._closing), decoded)
        self._closing.clear()
        return at

    def _count_quote(self, closing: str) -> None:
        """Note a quote that is a character, and what follows it."""
        if self._depth:
            self._is_quoted = not self._is_quoted
            self._count_brackets(closing)
        elif self._last and self._last in "{[":
            self._depth, self._is_quoted = 1, True

    def _count_brackets(self, text: str) -> None:
        if self._depth and not self._is_quoted:
            opened = text.count("{") + text.count("[")
            self._depth = max(0, self._depth + opened - text.count("}") - text.count("]"))

    def _decode_escape(self, text: str, at: int, decoded: list[str]) -> int:
        char, written = text[at], self._escape
        if written == "\\" and char != "u":
            self._escape = ""
            self._put(char if char == self._quote else _ESCAPES.get(char, written + char), decoded)
            return at + 1
        if written != "\\" and char not in _HEX_DIGITS:
            self._escape = ""
            self._put(written, decoded)
            return at
        self._escape = written + char
        if len(self._escape) == len("\\u0000"):
            self._put_unit(int(self._escape[2:], 16), decoded)
            self._escape = ""
        return at + 1

    def _put_unit(self, unit: int, decoded: list[str]) -> None:
        """Add a UTF-16 code unit; only a pair of surrogates makes a character."""
        if 0xD800 <= unit < 0xDC00:
            self._put("", decoded)
            self._high = unit
        elif 0xDC00 <= unit < 0xE000:
            pair = 0x10000 + ((self._high - 0xD800) << 10) + (unit - 0xDC00)
            decoded.append(chr(pair) if self._high else _REPLACEMENT)
            self._high = 0
        else:
            self._put(chr(unit), decoded)

    def _put(self, text: str, decoded: list[str]) -> None:
        if self._high:
            decoded.append(_REPLACEMENT)
            self._high = 0
        self._last = text.rstrip()[-1:] or self._last
        decoded.append(text)


def end_of_run(pattern: re.Pattern[str], text: str, start: int) -> int:
    """Return the end of the run that matches from `start`; the pattern has to match ""."""
    match = pattern.match(text, start)
    return match.end() if match else start
