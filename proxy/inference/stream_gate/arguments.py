"""Lets the arguments of a call out while they are being written, as far as they are beyond doubt.

Theory of operation
-------------------
The reader below follows strict JSON, one member of the top level after the other, and knows two
kinds of values. A string that every schema of its parameter takes flows as it comes, but for its
closing quote: only a known key, or the verdict, shows that the quote was the end. Every other value
is held until it is complete, checked by itself, and let out as it will be in the end. At the first
thing that is odd (an unknown key, broken JSON, a value that does not fit) the reader stops for
good, and the rest waits for the verdict on the whole.

So what was shown ends in one of three places: behind the opening brace, behind a whole value, or
within a string. From each of them it can be continued to any object that begins with the same
members, and `rest` says how. The work is linear in the text.
"""

import re
from collections.abc import Generator

from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.guardrails.respond import end_of_run
from proxy.guardrails.schemas.members import Members

_SPACE = re.compile(r"[ \t\n\r]*")
_PLAIN = re.compile(r'[^"\\\x00-\x1f]*')
_SCALAR = re.compile(r'[^\s,:"{}\[\]]*')
_INSIDE = re.compile(r'[^"{}\[\]]*')
_HIGH, _LOW = "[dD][89abAB][0-9a-fA-F]{2}", "[dD][c-fC-F][0-9a-fA-F]{2}"
_ESCAPE = re.compile(rf'\\(?:["\\/bfnrt]|u(?![dD][89a-fA-F])[0-9a-fA-F]{{4}}|u{_HIGH}\\u{_LOW})')
_LONGEST_ESCAPE = len("\\ud83d\\ude00")
_QUOTE = '"'
_MOST_QUOTED = 400  # characters of what was shown that a nudge repeats


class ShownArguments:
    """What the client has of one call's arguments: whole `members`, and perhaps half a string."""

    def __init__(self) -> None:
        self.members: JsonObject = {}
        self._text: list[str] = []
        self._string_name: str | None = None
        self._string: list[str] = []

    @property
    def text(self) -> str:
        """Everything shown so far: the beginning of a JSON object."""
        return "".join(self._text)

    @property
    def names(self) -> tuple[str, ...]:
        """The parameters of which something was shown, in order."""
        begun = () if self._string_name is None else (self._string_name,)
        return (*self.members, *begun)

    @property
    def beginning(self) -> str:
        """What was shown, if it is short enough to be said again."""
        text = self.text
        return text if len(text) <= _MOST_QUOTED else ""

    def add(self, text: str) -> None:
        """Take note of what goes out."""
        self._text.append(text)

    def add_to_string(self, text: str) -> None:
        """Take note of more of the string that is being shown; escapes are whole."""
        self._text.append(text)
        self._string.append(text)

    def begin_string(self, name: str) -> None:
        """Take note that the string of this parameter begins."""
        self._string_name = name
        self._string.clear()

    def end_string(self) -> None:
        """Take note that the string, if one was being shown, proved to be whole."""
        if self._string_name is not None:
            self.members[self._string_name] = self._begun
        self._string_name = None

    @property
    def _begun(self) -> str:
        written = "".join(self._string)
        value = json.parse(f'"{written}"')
        return value if isinstance(value, str) else ""

    def rest(self, arguments: str) -> str | None:
        """Return what is missing of finished arguments; None where these are no continuation.

        The text is the model's own where that begins with what was shown. Else the same value is
        written on from there.
        """
        text = self.text
        if arguments.startswith(text):
            return arguments[len(text) :]
        value = json.parse(arguments)
        if not isinstance(value, dict) or not self._is_continued_by(value):
            return None
        return self._written_on(value)

    def _is_continued_by(self, value: JsonObject) -> bool:
        if any(name not in value for name in self.members):
            return False
        kept = {name: value[name] for name in self.members}
        if json.dump(kept) != json.dump(self.members):  # 1 is not true, nor 1.0
            return False
        if self._string_name is None:
            return True
        string = value.get(self._string_name)
        return isinstance(string, str) and string.startswith(self._begun)

    def _written_on(self, value: JsonObject) -> str:
        written = ""
        shown = set(self.names)
        if self._string_name is not None:
            string = value[self._string_name]
            left = string[len(self._begun) :] if isinstance(string, str) else ""
            written = json.dump_text(left)[1:]
        members = [
            f"{json.dump_text(name)}:{json.dump_text(member)}"
            for name, member in value.items()
            if name not in shown
        ]
        if self._text and shown and members:
            written += ","
        opening = "" if self._text else "{"
        return f"{opening}{written}{','.join(members)}}}"


class ArgumentsRelease:
    """Reads the arguments of one call and lets out what the client may see of them."""

    def __init__(self, members: Members) -> None:
        self.shown = ShownArguments()
        self._members = members
        self._text = ""
        self._at = 0
        self._held: list[str] = []
        self._out: list[str] = []
        self._flows = False
        self._reading = self._read()

    def feed(self, fragment: str) -> str:
        """Take more of the arguments' text; return what may be shown now."""
        if self._flows and end_of_run(_PLAIN, fragment, 0) == len(fragment):
            self.shown.add_to_string(fragment)
            return fragment
        self._text, self._at = fragment, 0
        next(self._reading, None)
        out = "".join(self._out)
        self._out.clear()
        return out

    def _read(self) -> Generator[None, None, None]:
        if (yield from self._pass(_SPACE)) != "{":
            return
        self._take()
        self._let_out()
        while (name := (yield from self._read_key())) is not None:
            self._take()
            first = yield from self._pass(_SPACE)
            if first == _QUOTE and self._members.takes_any_string(name):
                is_whole = yield from self._show_string(name)
            else:
                is_whole = yield from self._show_value(name, first)
            if not is_whole:
                return
            if (yield from self._pass(_SPACE)) != ",":
                return
            self._take()

    def _read_key(self) -> Generator[None, None, str | None]:
        """Read a key up to its colon; None unless it names a parameter for the first time."""
        if (yield from self._pass(_SPACE)) != _QUOTE:
            return None
        start = len(self._held)
        if not (yield from self._pass_string()):
            return None
        name = json.parse("".join(self._held[start:]))
        if (yield from self._pass(_SPACE)) != ":":
            return None
        if not isinstance(name, str) or name in self.shown.names:
            return None
        return name if self._members.declares(name) else None

    def _show_string(self, name: str) -> Generator[None, None, bool]:
        """Let a string out as it comes, but for its closing quote; reports whether it had one."""
        self._take()
        self._let_out()
        self.shown.begin_string(name)
        while True:
            end = end_of_run(_PLAIN, self._text, self._at)
            self._flow(self._text[self._at : end])
            self._at = end
            if end == len(self._text):
                self._flows = True
                yield
                self._flows = False
            elif self._text[end] == _QUOTE:
                self._take()
                return True
            else:
                escape = yield from self._read_escape()
                if not escape:
                    return False
                self._flow(escape)

    def _show_value(self, name: str, first: str) -> Generator[None, None, bool]:
        """Let a value out once it is complete and right; reports whether it was."""
        start = len(self._held)
        if first == _QUOTE:
            is_whole = yield from self._pass_string()
        elif first in "{[":
            is_whole = yield from self._pass_container()
        else:
            yield from self._pass(_SCALAR)
            is_whole = True
        if not is_whole or (yield from self._pass(_SPACE)) not in ",}":
            return False
        return self._settle(name, start)

    def _settle(self, name: str, start: int) -> bool:
        """Let the value out that is held from `start` on, as it will be in the end."""
        try:
            settled = self._members.settle(name, json.parse("".join(self._held[start:])))
        except ValueError:
            return False
        if settled is None:
            return False
        if settled.is_changed:
            self._held[start:] = [json.dump_text(settled.value)]
        self._let_out()
        self.shown.members[name] = settled.value
        return True

    def _pass_container(self) -> Generator[None, None, bool]:
        depth = 0
        while True:
            mark = yield from self._pass(_INSIDE)
            if mark == _QUOTE:
                if not (yield from self._pass_string()):
                    return False
                continue
            depth += 1 if mark in "{[" else -1
            self._take()
            if depth == 0:
                return True

    def _pass_string(self) -> Generator[None, None, bool]:
        """Hold a whole string; reports whether it is one."""
        self._take()
        while (mark := (yield from self._pass(_PLAIN))) != _QUOTE:
            escape = (yield from self._read_escape()) if mark == "\\" else ""
            if not escape:
                return False
            self._held.append(escape)
        self._take()
        return True

    def _read_escape(self) -> Generator[None, None, str]:
        """Read one escape, a surrogate pair as one; nothing for what is none."""
        escape = ""
        while len(escape) < _LONGEST_ESCAPE and not _ESCAPE.fullmatch(escape):
            while self._at == len(self._text):
                yield
            escape += self._text[self._at]
            self._at += 1
            if escape[0] != "\\":
                return ""
        return escape if _ESCAPE.fullmatch(escape) else ""

    def _pass(self, pattern: re.Pattern[str]) -> Generator[None, None, str]:
        """Hold everything that matches and return the next character, without taking it."""
        while (end := end_of_run(pattern, self._text, self._at)) == len(self._text):
            self._held.append(self._text[self._at :])
            self._at = end
            yield
        self._held.append(self._text[self._at : end])
        self._at = end
        return self._text[end]

    def _take(self) -> None:
        self._held.append(self._text[self._at])
        self._at += 1

    def _let_out(self) -> None:
        """Show what is held; that it goes on shows that a string before it was whole."""
        self.shown.end_string()
        held = "".join(self._held)
        self._held.clear()
        self.shown.add(held)
        self._out.append(held)

    def _flow(self, text: str) -> None:
        if text:
            self.shown.add_to_string(text)
            self._out.append(text)
