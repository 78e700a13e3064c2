"""Separates thinking from answering: splits off the blocks that a reply begins with.

It knows only marks. Backends that split reasoning themselves never need it.
"""

import re
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from proxy.conversation.replies import ReasoningDelta, TextDelta
from proxy.guardrails.rescue.marks import ANSWERS, REASONING
from proxy.guardrails.rescue.values.cursor import (
    Literals,
    LooseLiterals,
    fold_mark,
    loose_pattern,
)


class AddressedText(TextDelta, frozen=True):
    """Text in a message to the user: what looks like a call in it is none."""


Spoken: TypeAlias = ReasoningDelta | TextDelta


_SplitterPlace: TypeAlias = Literal["start", "opened", "within", "between", "header", "answering"]


@dataclass(frozen=True, slots=True)
class _MarkedBlock:
    """A part of a reply that has marks of its own, up to one of `ends`."""

    ends: Literals
    kind: type[Spoken] = ReasoningDelta


# Inkling's messages: the prompt ends before the header of the first, or after it.
_INKLING = ("", "<|message_model|>")
_INKLING_END = LooseLiterals(("<|end_message|>",))
_BLOCKS = (
    {opening: _MarkedBlock(LooseLiterals((end,))) for opening, end in REASONING.items()}
    | {opening: _MarkedBlock(LooseLiterals((end,)), TextDelta) for opening, end in ANSWERS.items()}
    | {f"{header}<|content_thinking|>": _MarkedBlock(_INKLING_END) for header in _INKLING}
    | {f"{header}<|content_text|>": _MarkedBlock(_INKLING_END, TextDelta) for header in _INKLING}
)
# Harmony: a reply is a series of messages, each with a header that names its channel. The prompt
# ends within the first header; what is said to the user before a tool call is "commentary".
_HEADER_STARTS = ("<|start|>", "<|channel|>")
_HEADER_END = "<|message|>"
_LONGEST_HEADER = 128
_CHANNEL = re.compile(r"<\|channel\|>\s*(\w+)")
_RECIPIENT = "to="
_SELF = f"to=self{_HEADER_END}"  # Muse addresses its thoughts
_USER = f"to=user{_HEADER_END}"  # and what it says
_FINAL = "final"
_TURN_ENDS = Literals(("<|end|>", "<|return|>", "<|eom|>", "<|eot|>", "<|start|>"))
_MESSAGE_ENDS = Literals(("<|end|>", "<|return|>", "<|eom|>", *_HEADER_STARTS))
_CHANNELS = {
    "analysis": _MarkedBlock(_MESSAGE_ENDS),
    "commentary": _MarkedBlock(_MESSAGE_ENDS, TextDelta),
    _FINAL: _MarkedBlock(_MESSAGE_ENDS, TextDelta),
    _SELF: _MarkedBlock(_MESSAGE_ENDS),
    _USER: _MarkedBlock(_TURN_ENDS, AddressedText),
}
_BLOCKS |= {one: _CHANNELS[one] for one in (_SELF, _USER)}
# Kimi K3's and Inkling's, after the answer.
_ENDS_OF_ALL = ("<|close|>message<|sep|>", "<|content_model_end_sampling|>")
_MARKS = LooseLiterals((*_BLOCKS, *REASONING.values(), *_HEADER_STARTS, *_ENDS_OF_ALL))
_FOLDED_BLOCKS = {fold_mark(mark): block for mark, block in _BLOCKS.items()}
# A reply of nothing but marks is noise; the search stops here.
_MOST_BLOCKS = 100
_PARAGRAPH = "\n\n"
# At most so many characters of possible thoughts are held: about 30,000 tokens.
_MOST_HELD = 2**17
# An end without a beginning is only mentioned if it is quoted or inside a line of words.
_ENDS = tuple(dict.fromkeys(REASONING.values()))
_END = f"(?i:{'|'.join(map(loose_pattern, _ENDS))})"
_STRAY_END = re.compile(
    rf"^[ \t]*{_END}|(?<![ \t`\"'“«(]){_END}(?![`\"'”»)])|{_END}[ \t]*$", re.MULTILINE
)
_ANY_END = re.compile(_END)
_LONGEST_END = 2 * max(map(len, _ENDS))  # with white space


@dataclass(slots=True)
class ThoughtHabit:
    """Whether a model is expected to end thoughts that its prompt had opened.

    One reply that does so is enough; three answers in a row that do not undo it.
    """

    lasting: int = 0

    def note(self, *, is_shown: bool) -> None:
        self.lasting = 3 if is_shown else max(0, self.lasting - 1)


@dataclass(slots=True)
class ReasoningSplitter:
    """Splits a reply into reasoning and text while it is being generated.

    Only blocks at the very start count, and blocks right after them. Whatever may still be part of
    a mark, or white space that a mark would remove, is held back; everything else is passed on at
    once. A header that addresses a tool is left to the rescue, with all that follows. If the prompt
    may have opened thoughts (`is_opened`), everything is held up to their end, the end of the
    reply, or `_MOST_HELD` characters; then `has_ended` says whether there were any.
    """

    is_opened: bool = False
    has_ended: bool = field(default=False, init=False)
    _place: _SplitterPlace = "start"
    _block: _MarkedBlock = _CHANNELS[_FINAL]
    _partial: str = ""
    _spaces: list[str] = field(default_factory=list)
    _is_block_blank: bool = True
    _patience: int = _MOST_BLOCKS
    _said: set[type[Spoken]] = field(default_factory=set)
    _spoken: list[Spoken] = field(default_factory=list)
    _held: int = 0
    _tail: str = ""

    @property
    def is_over(self) -> bool:
        """Whether all that follows is text."""
        return self._place == "answering"

    def feed(self, text: str) -> list[Spoken]:
        if self._place == "answering":
            return [TextDelta(text)] if text else []
        while text:
            text = self._read_on(text)
        return self._report()

    def settle(self) -> list[Spoken]:
        """Decide about possible thoughts: nothing follows that could end them."""
        self.is_opened = False
        if self._place == "opened":
            self._end_opened(is_over=True)  # a mark with anything after it was judged before
        return self._report()

    def take_space(self) -> str:
        """Return the white space that the reply began with, because no text follows it."""
        is_first = self._place == "start" and not self._partial
        return self._take_spaces() if is_first else ""

    def finish(self) -> list[Spoken]:
        """Return what was held back; a block that was never closed ends with the reply."""
        spoken = self.settle()
        held, self._partial = self._take_spaces() + self._partial, ""
        if self._place != "within":
            self._answer(held)
        else:
            is_start = self._block.kind is ReasoningDelta and self._is_block_blank
            self._say(held.lstrip() if is_start else held)
        return spoken + self._report()

    def _read_on(self, text: str) -> str:
        """Read before the answer, and return the rest; white space before no mark is text."""
        if self._place == "header":
            return self._read_header(text)
        if self._place in ("opened", "within"):
            return (self._read_opened if self._place == "opened" else self._read_block)(text)
        head = self._partial + text if self._partial else text.lstrip()
        if not self._partial and self._place == "start":
            self._spaces.append(text[: len(text) - len(head)])
        mark = _MARKS.at(head, 0, is_finished=False) if self._patience else ""
        self._partial = head if mark is None else ""
        if mark is None:
            return ""
        if not mark:
            return self._answer(self._take_spaces() + head)
        self._patience -= 1
        if mark in _HEADER_STARTS:
            self._place = "header"
            return head
        self._enter(_FOLDED_BLOCKS.get(fold_mark(mark)))
        return head[len(mark) :]

    def _read_header(self, text: str) -> str:
        head, end, body = (self._partial + text).partition(_HEADER_END)
        is_long = len(head) > (_LONGEST_HEADER if end else _LONGEST_HEADER + len(_HEADER_END))
        self._partial = "" if end or is_long else head
        if self._partial:
            return ""
        channel = "" if is_long else _channel(head + end)
        if channel not in _CHANNELS:
            return self._answer(self._take_spaces() + head + end + body)
        self._enter(_CHANNELS[channel])
        return body

    def _read_block(self, text: str) -> str:
        text = self._partial + text
        place = self._block.ends.find(text, 0, is_finished=False)
        mark = self._block.ends.at(text, place, is_finished=False)
        if self._block.kind is ReasoningDelta:
            self._emit_thought(text[:place])
        else:
            self._say(text[:place])
        self._partial = "" if mark else text[place:]
        if not mark:
            return ""
        self._enter(None)
        return text[place if mark in _HEADER_STARTS else place + len(mark) :]

    def _read_opened(self, text: str) -> str:
        """Hold possible thoughts; a mark is judged by what follows it."""
        self._spaces.append(text)
        self._held += len(text)
        window = self._tail + text
        mark = _ANY_END.search(window)
        if is_marked := mark is not None and mark.end() < len(window):
            window = window[mark.end() :]
            self._patience -= 1
        self._tail = window[-_LONGEST_END:]
        is_over = self._held > _MOST_HELD or not self._patience
        return self._end_opened(is_over=is_over) if is_marked or is_over else ""

    def _end_opened(self, *, is_over: bool) -> str:
        """End thoughts that the prompt had opened, or find that it had not; return the rest."""
        held = "".join(self._spaces)
        end = _find_end(held)
        if end is not None and (is_over or end.end() < len(held)):
            self.has_ended = True
            self._emit(ReasoningDelta, held[: end.start()].strip())
            self._enter(None)
            return held[end.end() :]
        return self._answer(self._take_spaces()) if is_over else ""

    def _enter(self, block: _MarkedBlock | None) -> None:
        """Begin a block, or end the current one; both remove white space."""
        self._place = "within" if block else "between"
        self._spaces = []
        if block is not None:
            self._block, self._is_block_blank = block, True

    def _emit_thought(self, text: str) -> None:
        body = text.rstrip()
        if not body:
            self._spaces.append(text)
            return
        before, self._spaces = self._take_spaces(), [text[len(body) :]]
        self._say(body.lstrip() if self._is_block_blank else before + body)

    def _say(self, text: str) -> None:
        """Emit part of a block, in a new paragraph if there was an earlier block of its kind."""
        if text and self._is_block_blank:
            self._is_block_blank = False
            text = _PARAGRAPH + text if self._block.kind in self._said else text
        self._emit(self._block.kind, text)

    def _take_spaces(self) -> str:
        spaces, self._spaces = "".join(self._spaces), []
        return spaces

    def _answer(self, text: str) -> str:
        """Emit text outside of blocks; from here on everything is."""
        if text and self.is_opened and self._place == "start":
            self._place = "opened"
            return text
        self._place = "answering" if text else self._place
        self._emit(TextDelta, text)
        return ""

    def _emit(self, kind: type[Spoken], text: str) -> None:
        if text:
            self._said.add(kind)
            self._spoken.append(kind(text))

    def _report(self) -> list[Spoken]:
        spoken, self._spoken = self._spoken, []
        return spoken


class EnoughHeardError(Exception):
    """Nothing more of a reply is wanted, for example because it repeats itself: stop the model."""


class EndedSplitter(ReasoningSplitter):
    """Takes the place of a splitter when no more of the reply is wanted."""

    def feed(self, text: str) -> list[Spoken]:
        """Raise `EnoughHeardError`, so that the caller stops the model."""
        raise EnoughHeardError


def _channel(header: str) -> str:
    """Return the channel of a message, "" for one that is addressed to a tool."""
    if header.endswith((_SELF, _USER)):
        return _SELF if header.endswith(_SELF) else _USER
    name: str = ["", *_CHANNEL.findall(header)][-1]
    return "" if _RECIPIENT in header and name != _FINAL else name


def split_thoughts(text: str) -> tuple[str, str]:
    splitter = ReasoningSplitter()
    spoken = splitter.feed(text) + splitter.finish()
    thoughts = "".join(one.text for one in spoken if isinstance(one, ReasoningDelta))
    said = "".join(one.text for one in spoken if isinstance(one, TextDelta))
    return (thoughts, said) if thoughts or said != text else split_unopened(text)


def split_unopened(text: str) -> tuple[str, str]:
    """Split a whole reply whose thoughts the prompt had opened; no thoughts without an end."""
    end = _find_end(text)
    return (text[: end.start()].strip(), text[end.end() :].lstrip()) if end else ("", text)


def _find_end(text: str) -> re.Match[str] | None:
    if (end := _STRAY_END.search(text)) is None:
        return None
    mark, before = fold_mark(end[0]), fold_mark(text[: end.start()])
    begins = (fold_mark(opening) for opening, end in REASONING.items() if fold_mark(end) == mark)
    return None if any(opening in before for opening in begins) else end
