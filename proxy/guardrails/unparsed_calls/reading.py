"""Reads a text as a call in an unknown syntax: marks, the name of a tool, keys and values.

Outside of values, a call contains only marks, words of marks (`words.toml`), the name of a tool and
the names of its parameters. The reader stops at any other word, because a text with this word is
prose:

    <command_Bash>cat TASKS.md</command_Bash>         a tag of key and name (ollama#15573)
    invoke get_weather with city => Paris             prose: "with" is in no mark
"""

# ruff: noqa: RUF001 - the control tokens of DeepSeek have a fullwidth bar

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple, TypeAlias

from proxy.conversation.possessive import possessive
from proxy.conversation.tools import Tool
from proxy.guardrails.rescue.rows import FENCE
from proxy.guardrails.rescue.syntaxes.tool_names import keys_of
from proxy.guardrails.unparsed_calls import words

# Each alternative is bounded, or consumes all text that it examines. So the time is linear.
_TOKEN = re.compile(
    possessive(
        r"""(?P<control><[|｜][^<>\s]{1,60}>)
    |(?P<closer></[^<>]{1,80}>)
    |(?P<tag><[\w:][^<>{}]{0,200}>)
    |(?P<fence>```[\w-]*)
    |(?P<string>"[^"\\]*+(?:\\.[^"\\]*+)*+"|(?<!\w)'[^'\\]*+(?:\\.[^'\\]*+)*+')
    |(?P<unclosed>(?:"|(?<!\w)').*|<[^<>]{0,200}\Z)
    |(?P<word>\w{1,100}+(?:[.-]\w{1,100}+){0,9}+(?:[.-]\Z)?)
    |(?P<marks>[\s{}()\[\]=:,;|@\#$/>-]{1,400}+|<)
    |(?P<other>.)"""
    ),
    re.VERBOSE | re.DOTALL,
)
_ATTRIBUTE = re.compile(r"""([\w:][\w.:-]*)(?:\s*=\s*("[^"]*"|'[^']*'|[^\s"'/>]+))?""")
_SEPARATOR = re.compile(r"\s{0,40}+(?:(?:=>|:=|=|:)\s{0,40}+|(?<=\s)(?=[\"']))")
_BARE = re.compile(r"[^\n,;|<>(){}\[\]\"'`]{0,200}")


class Token(NamedTuple):
    """A token of the text; `kind` is the name of a group in `_TOKEN`, `end` the index after it."""

    kind: str
    text: str
    end: int


def token_at(text: str, index: int) -> Token:
    """Return the token that begins at `index`; raises AssertionError at the end of the text."""
    match = _TOKEN.match(text, index)
    assert match is not None  # noqa: S101 - the last alternative matches any character
    return Token(str(match.lastgroup), match[0], match.end())


def attributes(tag: str) -> Iterator[tuple[str, str]]:
    """Yield the words of a tag with their values.

    `<f city="Rome">` -> ("f", ""), ("city", "Rome")
    """
    for word, value in _ATTRIBUTE.findall(tag):
        yield word, value.strip("\"'")


def value_start(text: str, index: int) -> int:
    """Return the start of the value after a key that ends at `index`; -1 if none follows."""
    match = _SEPARATOR.match(text, index)
    return -1 if match is None else match.end()


def bare_value(text: str, index: int) -> str:
    """Return the text from `index` to the next quotation mark, bracket or line end."""
    match = _BARE.match(text, index)
    return "" if match is None else match[0]


Tools: TypeAlias = Mapping[str, Tool]

_MOST_TOKENS = 600  # a longer text is not a call
_LONGEST_HEAD = 160  # characters before the name of the tool
_MOST_WORDS = 8  # a longer value without enclosing marks is prose
_MOST_CONTENT = 2_000  # characters of one value that are compared with the prompt
_LOOKAHEAD = 20
_JOINTS = re.compile(r"[_.:-]")
_OPENING, _CLOSING = "([{", ")]}"
_CONTROL = ("<|", "<\uff5c")


class CallReader:
    """Reads a text once, from the start to its end or to the first prose.

    - `tool`: the last tool that was named
    - `has_key`: a parameter of the tool was read as a key
    - `is_marked`: a mark contains a word about calls
    - `is_unclosed`: the text ends within a value or a mark
    - `contents`: all keys and values in order
    """

    def __init__(self, text: str, tools: Tools) -> None:
        self.tool: Tool | None = None
        self.has_key = False
        self.is_marked = False
        self.is_unclosed = False
        self.contents: list[str] = []
        self._text = text
        self._tools = tools
        self._keys: frozenset[str] = frozenset()
        self._index = 0
        self._is_first = True  # the current token is the first token of the text
        self._depth = 0  # the number of open brackets
        self._level: int | None = None  # the depth at the first key of the tool
        self._has_unknown_tag = False
        self._introduces_value = False
        self._awaits_value = False
        self._handlers = {
            "control": self._accept_control,
            "closer": self._accept_closer,
            "tag": self._accept_tag,
            "fence": self._accept_fence,
            "string": self._accept_string,
            "unclosed": self._accept_unclosed,
            "word": self._accept_word,
            "marks": self._accept_marks,
        }

    def read_to_end(self) -> bool:
        """Read the text; return False if it contains prose."""
        for _ in range(_MOST_TOKENS):
            if self._index >= len(self._text):
                return True
            token = token_at(self._text, self._index)
            has_room = self.tool is not None or token.end <= _LONGEST_HEAD
            if not has_room or not self._accept(token):
                return False
        return False

    def may_continue(self) -> bool:
        """Return whether the word at which the reader stopped may become part of a call.

        Only the last word of the text can become a key, a name or a mark when more text arrives.
        """
        unread = self._text[self._index : self._index + _LONGEST_HEAD]
        if unread in ("`", "``"):
            return True
        source = unread.rstrip()
        if not source or len(unread) == _LONGEST_HEAD:
            return False
        token = token_at(source, 0)
        is_fence = token.kind == "fence" and self._index == 0
        if token.end < len(source) or not (is_fence or token.kind == "word"):
            return False
        if source != unread:
            return token.text in self._keys or self._is_nested
        return self._may_continue_word(token.text)

    def _may_continue_word(self, word: str) -> bool:
        source = word.removeprefix(FENCE)
        known = (*self._tools, *self._keys)
        is_name = any(name.startswith(self._without_namespace(source)) for name in known)
        may_mark = words.may_become_marker(source, is_first=self._index == 0)
        return is_name or may_mark or self._is_nested

    def _accept(self, token: Token) -> bool:
        """Consume a token, and the value after it; return False if the token is prose."""
        start, self._index = self._index, token.end
        self._is_first = start == 0
        handler = self._handlers.get(token.kind)
        if handler is not None and handler(token):
            return True
        self._index = start
        return False

    # Marks.

    def _accept_marks(self, token: Token) -> bool:
        marks = token.text
        self._depth += sum(map(marks.count, _OPENING)) - sum(map(marks.count, _CLOSING))
        return True

    def _accept_control(self, token: Token) -> bool:
        """Accept a control token; between a key and its value, also consume the value."""
        self.is_marked = True
        return not self._awaits_value or self._accept_element("<", token.end)

    def _accept_closer(self, token: Token) -> bool:
        self.is_marked |= words.is_about_calls(token.text, is_tag=True)
        return True

    def _accept_fence(self, token: Token) -> bool:
        """Accept a fence around the complete text if its language is a word of marks."""
        if not self._is_first:
            is_last = token.text == FENCE and token.end == len(self._text.rstrip())
            return is_last and self._text.startswith(FENCE)
        self.is_marked |= words.is_about_calls(token.text)
        return self.is_marked and words.is_marker(token.text.lstrip("`"))

    def _accept_unclosed(self, token: Token) -> bool:
        self.is_unclosed = True
        return (
            self.tool is not None or token.text[0] == "<" or self._may_continue_word(token.text[1:])
        )

    # Words.

    def _accept_word(self, token: Token) -> bool:
        word = token.text
        is_listed = self._depth > 0 and self._text.startswith("(", token.end)
        if self._accept_tool(word, is_listed=is_listed):
            return True
        is_key = value_start(self._text, token.end) >= 0
        if word in self._keys:
            return (is_key or self._text.startswith("<", token.end)) and self._accept_key(token)
        if words.is_marker(word):
            if self._is_first and not words.is_first_marker(word):
                return False
            is_recipient = word == "to" and self._text.startswith("=", token.end)
            self.is_marked |= is_recipient or words.is_about_calls(word)
            return True
        if is_key and self._is_nested:
            return self._accept_key(token)
        return self.tool is not None and words.is_literal(word)

    def _accept_string(self, token: Token) -> bool:
        content = token.text[1:-1]
        if (self.tool is None or self.is_marked) and self._accept_tool(content):
            return True
        if self.tool is None:
            self.is_marked |= words.is_about_calls(content)
            return words.is_marker(content)
        if value_start(self._text, token.end) < 0:
            self._add_content(content)
            is_object = content.startswith("{") and any(
                f'\\"{key}\\"' in content for key in self._keys
            )
            self.has_key |= is_object
            return is_object or not words.is_placeholder(content)
        if content in self._keys or self._is_nested:
            return self._accept_key(Token(token.kind, content, token.end))
        return words.is_marker(content)

    def _accept_tool(self, word: str, *, is_listed: bool = False) -> bool:
        """Accept the name of a tool.

        A second name is accepted only if the text has marks of calls, or if the name is in a list
        of calls.
        """
        tool = self._tools.get(self._without_namespace(word))
        if tool is None or (self.tool is not None and not (self.is_marked or is_listed)):
            return False
        self.tool = tool
        self._keys = keys_of(tool)
        self._level = None
        return True

    def _without_namespace(self, word: str) -> str:
        """Remove the namespace from `functions.get_weather`."""
        space, _, name = word.rpartition(".")
        is_known = words.is_marker(space) and (not self._is_first or words.is_first_marker(space))
        return name if is_known and word not in self._tools else word

    @property
    def _is_nested(self) -> bool:
        """Whether the current token is inside the value of a key, where any key is accepted."""
        return self._level is not None and self._depth > self._level

    # Keys and values.

    def _add_key(self, key: str) -> None:
        self.has_key |= key in self._keys
        self._add_content(key)
        if self._level is None:
            self._level = self._depth

    def _add_content(self, source: str) -> None:
        if source:
            self.contents.append(source[:_MOST_CONTENT])

    def _accept_key(self, token: Token) -> bool:
        self._add_key(token.text)
        index = value_start(self._text, token.end)
        self._awaits_value = self._text.startswith(_CONTROL, max(index, token.end))
        if index < 0:
            return True
        value = bare_value(self._text, index)
        self._index = index + len(value)
        self._add_content(value)
        if self._index == len(self._text):  # the value may be incomplete
            return True
        is_long = len(value.split(maxsplit=_MOST_WORDS)) > _MOST_WORDS
        return not is_long and not words.is_placeholder(value)

    def _accept_tag(self, token: Token) -> bool:
        """Accept a tag; if it introduces a value, consume the value up to the closing tag."""
        pairs = [*attributes(token.text)]
        name = pairs[0][0]
        self._introduces_value = words.introduces_value(name)
        for word, value in pairs:
            is_fit = self._accept_attribute(word, value) if value else self._accept_tag_word(word)
            if not is_fit and not (token.text == f"<{word}>" and self._accept_unknown_tag()):
                return False
        is_empty = token.text.endswith("/>") or not self._introduces_value
        return is_empty or self._accept_element(f"</{name}", token.end)

    def _accept_key_tag(self, key: str) -> bool:
        self._add_key(key)
        self._introduces_value = True
        return True

    def _accept_unknown_tag(self) -> bool:
        """Accept a single unknown tag directly before the name of the tool."""
        is_first, self._has_unknown_tag = not self._has_unknown_tag, True
        is_before_word = (
            not self._text[self._index : self._index + _LOOKAHEAD].lstrip().startswith("<")
        )
        return is_first and is_before_word and self.tool is None

    def _accept_element(self, closer: str, start: int) -> bool:
        self._awaits_value = False
        end = self._text.find(closer, start)
        if end < 0:
            self.is_unclosed = True
            end = len(self._text)
        self._index = end
        value = self._text[start:end]
        self._add_content(value)
        return self.is_unclosed or not words.is_placeholder(value)

    def _accept_tag_word(self, word: str) -> bool:
        if self._accept_tool(word):
            return True
        if word in self._keys or (word := self._key_beside_name(word)) in self._keys:
            return self._accept_key_tag(word)
        self.is_marked |= words.is_about_calls(word, is_tag=True)
        return words.is_marker(word)

    def _key_beside_name(self, word: str) -> str:
        """Split a tag such as `<command_bash>` into key and tool name; return the key.

        Returns `word` if it does not consist of a key and a tool name.
        """
        for joint in _JOINTS.finditer(word):
            halves = word[: joint.start()], word[joint.end() :]
            for name, key in (halves, halves[::-1]):
                tool = self._tools.get(name)
                if tool is not None and key in keys_of(tool) and self._accept_tool(name):
                    self.is_marked = True
                    return key
        return word

    def _accept_attribute(self, word: str, value: str) -> bool:
        """Accept attributes such as `name="city"`, `parameter=city`, `city="Paris"`, `id="1"`."""
        if word in self._keys:
            self._add_key(word)
            self._add_content(value)
            return not words.is_placeholder(value)
        self.is_marked |= words.is_about_calls(word, is_tag=True)
        if not words.is_marker(word) or self._accept_tool(value):
            return words.is_marker(word)
        if value in self._keys:
            return self._accept_key_tag(value)
        return words.is_marker(value) or not words.names_key(word)
