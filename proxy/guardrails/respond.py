"""The synthetic tool `respond`, which a model calls to answer in prose.

The tool is the last in the list and is never sent to the client: the message in its call becomes
the text of the reply. The message is decoded while the arguments arrive, so that it can be
streamed. `inference.plan` decides when to offer the tool, and `inference.text_gate` decides when to
send its message.

    respond({"message": "It is sunny in Rome."})    the client receives: It is sunny in Rome.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, count

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.tools import Tool
from proxy.guardrails.names import find_name
from proxy.guardrails.rescue.values.cursor import Cursor, Waiting
from proxy.guardrails.rescue.values.escapes import read_escape
from proxy.guardrails.rescue.values.reader import read_only_value, read_value
from proxy.guardrails.rescue.values.scalars import MemberWatcher, Style, Unreadable, Value
from proxy.guardrails.rescue.values.strings import QUOTES, consume_literal_text

_PARAMETER = "message"
# The tool changes the prompt: it spoiled 9 of 152 correct replies of a small model (decision 0003).
DESCRIPTION = (
    "Answer the user in words. Call this when no other tool is needed, or once you know the answer."
)
_PARAMETERS: JsonObject = {
    "type": "object",
    "properties": {_PARAMETER: {"type": "string", "description": "The complete answer."}},
    "required": [_PARAMETER],
    "additionalProperties": False,
}

# Names of answer tools in other systems. Models call these tools although they are not offered.
ANSWER_TOOLS = ("respond", "respond_to_user", "final_answer", "final_response", "finish")

# The answer tools whose calls are found in text by their names, as in `respond("...")`. `finish` is
# excluded, because it is also an ordinary word.
UNOFFERED = tuple(Tool(name, {}, b"") for name in ANSWER_TOOLS if name != "finish")

# The start of arguments without a value, for example because the reply ended at the deadline.
_NO_VALUE = re.compile(r'\s*\{\s*"\w*(?:"\s*:?\s*)?')
_STYLE = Style(has_words=True)
_AFTER_QUOTE = re.compile(r"\s+")
_AFTER_INNER_QUOTE = re.compile(r"[\s}]+")


@lru_cache(maxsize=1024)
def is_answer_tool(name: str) -> bool:
    """Return whether a name is one of `ANSWER_TOOLS`, or similar enough (`names.find_name`)."""
    return find_name(name, ANSWER_TOOLS) is not None


@lru_cache(maxsize=256)
def make_respond_tool(client_names: tuple[str, ...]) -> Tool:
    """Make the tool, with a name that no tool of the client has."""
    numbered = (f"respond_{number}" for number in count(2))
    names = chain(("respond", "respond_to_user"), numbered)
    name = next(name for name in names if name not in client_names)
    function: JsonObject = {"name": name, "description": DESCRIPTION, "parameters": _PARAMETERS}
    return Tool(name, _PARAMETERS, json.dump({"type": "function", "function": function}))


def extract_message(arguments: JsonValue) -> str:
    """Return the message of a complete call.

    `MessageDecoder` decodes a prefix of this message. If the arguments are broken, the readable
    part of the message is returned. If they are not JSON, they are the message.
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


def only_text(arguments: JsonValue) -> str | None:
    """Return the value of the only argument if the value is a text, otherwise None."""
    if isinstance(arguments, str):
        try:
            arguments = json.parse(arguments)
        except ValueError:
            return None
    values = [*arguments.values()] if isinstance(arguments, dict) else [None]
    text = values[0] if len(values) == 1 else None
    return text if isinstance(text, str) and text.strip() else None


def _extract_from_text(text: str) -> str:
    try:
        value = json.parse(text)
    except ValueError:
        decoder = MessageDecoder()
        decoder.feed(text)
        if decoder.has_begun:
            return decoder.text
        match read_only_value(text):
            case Value(dict() as arguments):
                return _extract_from_members(arguments)
            case _:
                return "" if _NO_VALUE.fullmatch(text) else text.strip()
    return text if isinstance(value, bool | int | float | list) else extract_message(value)


def _extract_from_members(arguments: JsonObject) -> str:
    message = arguments.get(_PARAMETER)
    if isinstance(message, str):
        return message
    strings = [value for value in arguments.values() if isinstance(value, str)]
    if len(strings) == 1:  # the parameter has another name: {"answer": "It is noon."}
        return strings[0]
    if _PARAMETER in arguments:
        return "" if message is None else json.dump_text(message)
    return json.dump_text(arguments) if arguments else ""


class MessageDecoder(MemberWatcher):
    """Decodes the top-level string `message` of a JSON object while its text arrives.

    The lenient reader stops at the start of the message, which is then decoded as it arrives.
    Single quotes, bare keys, raw newlines and unescaped quotes are accepted. If the text before the
    message is unreadable, nothing is decoded. The time is linear in the length of the text.
    """

    def __init__(self) -> None:
        self.has_begun = False
        self._decoded: list[str] = []
        self._cursor = Cursor()
        self._reading = self._read()
        # The closing quote, while text up to this quote needs no decoding; otherwise "".
        self._plain_until = ""
        self._is_over = False

    @property
    def text(self) -> str:
        return "".join(self._decoded)

    def feed(self, fragment: str) -> str:
        """Add text of the arguments; return the decoded characters of the message."""
        decoded = self._decoded
        if self._plain_until and self._plain_until not in fragment and "\\" not in fragment:
            decoded.append(fragment)
            return fragment
        if self._is_over or not fragment:
            return ""
        start = len(decoded)
        self._cursor.feed(fragment)
        try:
            next(self._reading)
        except StopIteration:
            self._is_over = True
        return "".join(decoded[start:])

    def enters(self, path: Sequence[str | None], members: JsonObject) -> bool:
        """Stop the reader at the message."""
        return [*path] != [_PARAMETER]

    def adds(self, items: Sequence[JsonValue]) -> bool:
        """Stop the reader at a list, which has no member `message`."""
        return False

    def _read(self) -> Waiting[None]:
        try:
            yield from read_value(self._cursor, self, _STYLE)
        except Unreadable as end:
            if end.problem == "unwanted" and (yield from self._cursor.peek()) in QUOTES:
                self.has_begun = True
                yield from self._read_string()

    def _read_string(self) -> Waiting[None]:
        """Append the decoded message, piece by piece.

        A quote ends the string only before a comma or a brace, because models forget to escape
        quotes. If the message quotes JSON, no quote inside that JSON ends the string. Without this
        rule, the quote before the first comma would end this message:

            {"message": "Send {"name": "f", "arguments": {}} to it."}
        """
        cursor, inner = self._cursor, _InnerJson()
        quote = yield from cursor.peek()
        cursor.advance(1)
        while True:
            if cursor.is_exhausted:
                self._plain_until = "" if inner.depth else quote
                yield
                self._plain_until = ""
            if text := consume_literal_text(cursor, quote):
                inner.add_text(text)
            elif cursor.starts_with("\\"):
                cursor.advance(1)
                text = yield from read_escape(cursor, quote)
            else:
                cursor.advance(1)
                after = _AFTER_INNER_QUOTE if inner.depth else _AFTER_QUOTE
                text = quote + (yield from cursor.take(after))
                if (yield from cursor.peek()) in ",}" and not inner.depth:
                    return
                inner.add_quote(text, self._last_char)
            self._decoded.append(text)

    @property
    def _last_char(self) -> str:
        """The last decoded character that is not white space; "" if there is none."""
        pieces = (piece.rstrip() for piece in reversed(self._decoded))
        return next(filter(None, pieces), "")[-1:]


@dataclass(slots=True)
class _InnerJson:
    """The state of JSON that a string quotes: open brackets, and whether a string is open."""

    depth: int = 0
    is_quoted: bool = False

    def add_text(self, text: str) -> None:
        if self.depth and not self.is_quoted:
            opened = text.count("{") + text.count("[")
            self.depth = max(0, self.depth + opened - text.count("}") - text.count("]"))

    def add_quote(self, text: str, before: str) -> None:
        """Add a quote and the text after it; `before` is the last character before the quote."""
        if self.depth:
            self.is_quoted = not self.is_quoted
        elif before in ("{", "["):
            self.depth, self.is_quoted = 1, True
        self.add_text(text)
