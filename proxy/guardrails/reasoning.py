r"""Separates reasoning from content by the marks of `rescue/formats.toml`.

`ReasoningSplitter` is a state machine over the text of a reply:

    start ──mark──▶ within ──end mark──▶ between ──mark──▶ within
      │                                     │
      └──any other text──▶ answering ◀──────┘   answering ──reasoning mark──▶ within
                                                start, between ──Harmony──▶ header ──▶ within

In Harmony, the format of gpt-oss and Muse, each message of a reply has a header. If the prompt may
have opened a reasoning block (`is_opened`), text without a mark leads to the state "opened".

For example, `<think>\nNoon?</think>\n\nIt is noon.` becomes `ReasoningDelta("Noon?")` and
`TextDelta("It is noon.")`. Backends that separate reasoning themselves do not need the splitter.

An end mark in the answer without an open block stays in the text at first. The scanner of `rescue`
reports the mark as `EarlierReasoning`, unless the mark is quoted. `ReplyReader.finish` then turns
the text before the mark into reasoning, if the client has received none of this text.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from proxy.conversation.replies import ReasoningDelta, TextDelta
from proxy.guardrails.rescue.examples import introduces_example
from proxy.guardrails.rescue.formats import TABLE
from proxy.guardrails.rescue.marks import ANSWERS, REASONING, contains_call, loose_literals
from proxy.guardrails.rescue.rows import FENCE
from proxy.guardrails.rescue.values.cursor import (
    Literals,
    LooseLiterals,
    fold_mark,
    literals_of,
    loose_pattern,
)


class AddressedText(TextDelta, frozen=True):
    """Text of a message that is addressed to the user; it contains no calls."""


SplitPart: TypeAlias = ReasoningDelta | TextDelta


_State: TypeAlias = Literal["start", "opened", "within", "between", "header", "answering"]


@dataclass(frozen=True, slots=True)
class _Block:
    """A part of a reply between an opening mark and one of the marks `ends`.

    If it `is_trimmed`, the white space next to its marks is removed. If it `is_loose`, its end
    marks may differ in case and contain white space, as in `</ Think>`.
    """

    ends: tuple[str, ...]
    kind: type[SplitPart] = ReasoningDelta
    is_trimmed: bool = True
    is_loose: bool = True

    @property
    def literals(self) -> Literals:
        return loose_literals(*self.ends) if self.is_loose else literals_of(*self.ends)


_MESSAGES = TABLE.messages
_BLOCKS = {opening: _Block((end,)) for opening, end in (REASONING | _MESSAGES.thoughts).items()} | {
    opening: _Block((end,), TextDelta, is_trimmed=False)
    for opening, end in (ANSWERS | _MESSAGES.texts).items()
}
# Hunyuan's template wraps every answer in this tag. Other models write the tag if the prompt
# demands it.
((_ANSWER_TAG, _ANSWER_END),) = TABLE.wrapped_answers.items()
_BLOCKS[_ANSWER_TAG] = _Block((_ANSWER_END,), TextDelta)
# Harmony: a reply is a series of messages, each with a header that names its channel. The prompt
# ends within the first header. A message to the user before a tool call has the channel
# "commentary".
_HEADER_STARTS = _MESSAGES.header_starts
_HEADER_END = _MESSAGES.header_end
_LONGEST_HEADER = 128
_CHANNEL = re.compile(rf"{re.escape(_MESSAGES.channel)}\s*(\w+)")
_RECIPIENT = "to="
_SELF = f"to=self{_HEADER_END}"  # the header of Muse's reasoning
_USER = f"to=user{_HEADER_END}"  # the header of Muse's answers
_FINAL = "final"
_MESSAGE_ENDS = (*_MESSAGES.message_ends, *_HEADER_STARTS)
_CHANNELS = {
    "analysis": _Block(_MESSAGE_ENDS, is_loose=False),
    "commentary": _Block(_MESSAGE_ENDS, TextDelta, is_trimmed=False, is_loose=False),
    _FINAL: _Block(_MESSAGE_ENDS, TextDelta, is_trimmed=False, is_loose=False),
    _SELF: _Block(_MESSAGE_ENDS, is_loose=False),
    _USER: _Block(_MESSAGES.turn_ends, AddressedText, is_trimmed=False, is_loose=False),
}
_BLOCKS |= {header: _CHANNELS[header] for header in (_SELF, _USER)}
# After an engine dropped the control tokens of Harmony (Rapid-MLX#480), a reply was `analysisI know
# it.assistantfinalVienna.` No English word continues "analysis" with a letter, so before a letter
# or digit "analysis" is a mark.
_ANALYSIS, _ASSISTANT = "analysis", "assistant"
_NEXT_MESSAGES = tuple(f"{_ASSISTANT}{start}" for start in (_ANALYSIS, "commentary to="))
_BLOCKS[_ANALYSIS] = _Block(
    (*_NEXT_MESSAGES, f"{_ASSISTANT}{_FINAL}", f"{_ASSISTANT}commentary"), is_loose=False
)
# Marks after the answer of Kimi K3 and Inkling, and the word before Harmony's answer.
_REPLY_ENDS = (*_MESSAGES.reply_ends, f"{_ASSISTANT}{_FINAL}")
_MARKS = LooseLiterals((*_BLOCKS, *REASONING.values(), *_HEADER_STARTS, *_REPLY_ENDS))
_FOLDED_BLOCKS = {fold_mark(mark): block for mark, block in _BLOCKS.items()}
# Marks of reasoning in the middle of an answer.
_LATER_MARKS = LooseLiterals(REASONING)
_LATER_INITIALS = re.compile("|".join(sorted({re.escape(opening[0]) for opening in REASONING})))
_FENCED_LINE = re.compile(rf"^[ \t]*{FENCE}", re.MULTILINE)
_SENTENCE_END = re.compile(r"[.!?…。！？][ \t]*\Z")  # noqa: RUF001 - Chinese marks
_LEAD = 400  # characters before a mark that are searched for the introduction of an example
# A reply that consists of marks is noise, so the search for marks stops after this many blocks.
_MOST_BLOCKS = 100
_PARAGRAPH = "\n\n"
_MOST_HELD = 2**17  # characters of possible reasoning that are held back: about 30,000 tokens
# An end mark without a beginning is a quotation if it is in quotation marks or within a line.
_ENDS = tuple(dict.fromkeys(REASONING.values()))
_END = f"(?i:{loose_pattern(*_ENDS)})"
_STRAY_END = re.compile(
    rf"^[ \t]*{_END}|(?<![ \t`\"'“«(]){_END}(?![`\"'”»)])|{_END}[ \t]*$", re.MULTILINE
)
_ANY_END = re.compile(_END)
_LONGEST_END = 2 * max(map(len, _ENDS))  # twice, because an end mark may contain white space


@dataclass(slots=True)
class ThoughtHabit:
    """Remembers whether a model closes a reasoning block that its prompt opened.

    After a reply that closes such a block, the same is expected of the next three replies. Without
    this limit, text would still be held back after a client has switched reasoning off.
    """

    expected_replies: int = 0

    def note(self, *, is_shown: bool) -> None:
        self.expected_replies = 3 if is_shown else max(0, self.expected_replies - 1)


@dataclass(slots=True)
class ReasoningSplitter:
    """Splits a reply into reasoning and text while it is being generated.

    - A block is recognized at the start of the reply and directly after another block. A later
      reasoning block is recognized on separate lines (kekzl/imp#793), unless it is quoted or
      follows a call.
    - Text that may be the beginning of a mark is held back. White space that a mark would remove is
      held back as well. All other text is returned at once.
    - `<answer>` around an answer is removed, unless the `prompt` contains this tag.
    - If a header addresses a tool, the header and the rest of the reply are returned as text, in
      which `rescue` finds the call.
    - If the prompt may have opened a block (`is_opened`), text is held back until the block or the
      reply ends, or until `_MOST_HELD` characters are held. `has_ended` is true if the reply closed
      such a block.
    """

    is_opened: bool = False
    prompt: Sequence[str] = ()
    has_ended: bool = field(default=False, init=False)
    _state: _State = "start"
    _block: _Block = _CHANNELS[_FINAL]
    _partial: str = ""
    _spaces: list[str] = field(default_factory=list)
    _is_block_blank: bool = True
    _remaining_blocks: int = _MOST_BLOCKS
    _kinds: set[type[SplitPart]] = field(default_factory=set)
    _parts: list[SplitPart] = field(default_factory=list)
    _held: int = 0
    _tail: str = ""
    _answered: list[str] = field(default_factory=list)

    def feed(self, text: str) -> list[SplitPart]:
        # The fast path for most deltas of an answer: the text contains no beginning of a reasoning
        # mark.
        is_plain = self._state == "answering" and not self._partial
        if is_plain and text and not _LATER_INITIALS.search(text):
            self._answered.append(text)
            return [TextDelta(text)]
        self._read_all(text)
        return self._report()

    def settle(self) -> list[SplitPart]:
        """Decide whether held text is reasoning. The caller must know that no text follows."""
        self.is_opened = False
        if self._state == "opened":  # no text follows, so a mark at the end counts as well
            self._read_all(self._end_opened(is_over=True))
        return self._report()

    def record_answer(self, text: str) -> None:
        """Record text of the answer that the caller returned without the splitter."""
        if text:
            self._state = "answering"
            self._answered.append(text)

    def take_space(self) -> str:
        """Return and remove the held white space, if the reply has no other text so far."""
        is_first = self._state == "start" and not self._partial
        return self._take_spaces() if is_first else ""

    def finish(self) -> list[SplitPart]:
        """Return the text that was held back; an open block ends with the reply."""
        parts = self.settle()
        held, self._partial = self._take_spaces() + self._partial, ""
        if self._state != "within":
            self._read_all(self._answer(held))
            self._emit(TextDelta, self._partial)
        else:
            is_start = self._block.is_trimmed and self._is_block_blank
            self._emit_block(held.lstrip() if is_start else held)
        return parts + self._report()

    def _read_all(self, text: str) -> None:
        while text:
            text = self._read_part(text)

    def _read_part(self, text: str) -> str:
        """Read the next part and return the remaining text."""
        read = {
            "answering": self._read_answer,
            "header": self._read_header,
            "opened": self._read_opened,
            "within": self._read_block,
        }.get(self._state, self._read_beginning)
        return read(text)

    def _read_beginning(self, text: str) -> str:
        """Read text before the first mark, or between two marks."""
        head = self._partial + text if self._partial else text.lstrip()
        if not self._partial and (self._state == "start" or self._has_open_line):
            self._spaces.append(text[: len(text) - len(head)])
        mark = _MARKS.at(head, 0, is_finished=False) if self._remaining_blocks else ""
        # After "analysis", the next character shows whether "analysis" is the mark or an ordinary
        # word.
        is_open = mark is None or (mark == _ANALYSIS and head == mark)
        self._partial = head if is_open else ""
        if mark is None or is_open:
            return ""
        if not mark or not self._is_mark(mark, head):
            return self._answer(self._take_spaces() + head)
        self._remaining_blocks -= 1
        if mark in _HEADER_STARTS:
            self._state = "header"
            return head
        self._enter(_FOLDED_BLOCKS.get(fold_mark(mark)))
        return head[len(mark) :]

    @property
    def _has_open_line(self) -> bool:
        """Whether reasoning interrupted a line of the answer."""
        return bool(self._answered) and not self._answered[-1][-1].isspace()

    def _is_mark(self, mark: str, head: str) -> bool:
        """Return whether `mark` at the start of `head` is a mark, not a word of the answer."""
        if mark == _ANALYSIS:
            return head[len(mark)].isalnum()
        if fold_mark(mark) != _ANSWER_TAG:
            return True
        return not any(_ANSWER_TAG in text for text in self.prompt)

    def _read_answer(self, text: str) -> str:
        """Read text up to a later reasoning block."""
        text, self._partial = self._partial + text, ""
        if not self._remaining_blocks:
            self._emit_answer(text)
            return ""
        start = _LATER_MARKS.find(text, 0, is_finished=False)
        mark = _LATER_MARKS.at(text, start, is_finished=False)
        end = start + len(mark or "")
        is_later = self._begins_reasoning(text[:start], text[end:]) if mark else False
        if mark is None or is_later is None:
            self._partial = text[start:]
        elif mark:  # each check reads all of the answer, so checks are limited
            self._remaining_blocks -= 1
        if is_later:
            self._emit_answer(text[:start])
            self._enter(_FOLDED_BLOCKS[fold_mark(mark or "")])
            return text[end:]
        # A mark that does not begin reasoning is part of the answer.
        self._emit_answer(text[: start if self._partial else max(end, start + 1)])
        return "" if self._partial else text[max(end, start + 1) :]

    def _begins_reasoning(self, text: str, text_after: str) -> bool | None:
        """Return whether the mark between the two texts begins reasoning.

        Returns None if the decision depends on text that has not arrived yet.
        """
        before = "".join((*self._answered, text))
        lead = before[-_LEAD:].rstrip(" \t")
        starts_line = not lead or lead.endswith("\n")
        if not starts_line and not _SENTENCE_END.search(lead):
            return False
        words = lead.rstrip()
        is_example = words.endswith(":") or introduces_example(words)
        if is_example or len(_FENCED_LINE.findall(before)) % 2 or contains_call(before):
            return False
        return True if starts_line else (text_after.startswith("\n") if text_after else None)

    def _read_header(self, text: str) -> str:
        head, end, body = (self._partial + text).partition(_HEADER_END)
        # A header has an end mark within a limited length; longer text is not a header.
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
        ends = self._block.literals
        start = ends.find(text, 0, is_finished=False)
        mark = ends.at(text, start, is_finished=False)
        if self._block.is_trimmed:
            self._emit_trimmed(text[:start])
        else:
            self._emit_block(text[:start])
        self._partial = "" if mark else text[start:]
        if not mark:
            return ""
        self._enter(None)
        if mark in _NEXT_MESSAGES:
            return text[start + len(_ASSISTANT) :]
        return text[start if mark in _HEADER_STARTS else start + len(mark) :]

    def _read_opened(self, text: str) -> str:
        """Hold text that may be reasoning, until an end mark and the text after it arrive."""
        self._spaces.append(text)
        self._held += len(text)
        window = self._tail + text
        mark = _ANY_END.search(window)
        if is_marked := mark is not None and mark.end() < len(window):
            window = window[mark.end() :]
            self._remaining_blocks -= 1
        self._tail = window[-_LONGEST_END:]
        is_over = self._held > _MOST_HELD or not self._remaining_blocks
        return self._end_opened(is_over=is_over) if is_marked or is_over else ""

    def _end_opened(self, *, is_over: bool) -> str:
        """End a block that the prompt opened, if there is an end mark; return the remaining text.

        If no more text is awaited (`is_over`) and there is no end mark, the prompt opened no block,
        and the held text is the answer.
        """
        held = "".join(self._spaces)
        end = _find_end(held)
        if end is not None and (is_over or end.end() < len(held)):
            self.has_ended = True
            self._emit(ReasoningDelta, held[: end.start()].strip())
            self._enter(None)
            return held[end.end() :]
        return self._answer(self._take_spaces()) if is_over else ""

    def _enter(self, block: _Block | None) -> None:
        """Begin a block, or end the current block (None); held white space is discarded."""
        self._state = "within" if block else "between"
        self._spaces = []
        if block is not None:
            self._block, self._is_block_blank = block, True

    def _emit_trimmed(self, text: str) -> None:
        body = text.rstrip()
        if not body:
            self._spaces.append(text)
            return
        before, self._spaces = self._take_spaces(), [text[len(body) :]]
        self._emit_block(body.lstrip() if self._is_block_blank else before + body)

    def _emit_block(self, text: str) -> None:
        """Emit part of a block, after a paragraph break if an earlier block has the same kind."""
        if text and self._is_block_blank:
            self._is_block_blank = False
            text = _PARAGRAPH + text if self._block.kind in self._kinds else text
        self._emit(self._block.kind, text)

    def _take_spaces(self) -> str:
        spaces, self._spaces = "".join(self._spaces), []
        return spaces

    def _answer(self, text: str) -> str:
        """Enter "answering", or "opened" if `text` may be reasoning; return `text` unchanged."""
        is_opened = self.is_opened and self._state == "start"
        if text:
            self._state = "opened" if is_opened else "answering"
        return text

    def _emit_answer(self, text: str) -> None:
        if text:
            self._answered.append(text)
            self._emit(TextDelta, text)

    def _emit(self, kind: type[SplitPart], text: str) -> None:
        if text:
            self._kinds.add(kind)
            self._parts.append(kind(text))

    def _report(self) -> list[SplitPart]:
        parts, self._parts = self._parts, []
        return parts


class EnoughReadError(Exception):
    """Raised if the rest of a reply will be ignored, so that the caller stops the model.

    Qwen2.5-Coder 0.5B and 1.5B wrote up to 129 copies of a call, until `max_tokens` was reached.
    """


def _channel(header: str) -> str:
    """Return the channel of a message; "" if the message is addressed to a tool."""
    if header.endswith((_SELF, _USER)):
        return _SELF if header.endswith(_SELF) else _USER
    name: str = ["", *_CHANNEL.findall(header)][-1]
    return "" if _RECIPIENT in header and name != _FINAL else name


def split_thoughts(text: str) -> tuple[str, str]:
    """Split a complete reply into reasoning and answer."""
    splitter = ReasoningSplitter()
    parts = splitter.feed(text) + splitter.finish()
    reasoning = "".join(part.text for part in parts if isinstance(part, ReasoningDelta))
    answer = "".join(part.text for part in parts if isinstance(part, TextDelta))
    return (reasoning, answer) if reasoning or answer != text else split_unopened(text)


def split_unopened(text: str) -> tuple[str, str]:
    """Split a complete reply to a prompt that opened a reasoning block.

    Such a reply begins within the reasoning: `The user wants the time.</think>It is noon.` If there
    is no end mark, the reasoning is "".
    """
    end = _find_end(text)
    return (text[: end.start()].strip(), text[end.end() :].lstrip()) if end else ("", text)


def _find_end(text: str) -> re.Match[str] | None:
    """Find an end mark of reasoning that is neither quoted nor preceded by its opening mark."""
    if (end := _STRAY_END.search(text)) is None:
        return None
    mark, before = fold_mark(end[0]), fold_mark(text[: end.start()])
    openings = (fold_mark(opening) for opening, end in REASONING.items() if fold_mark(end) == mark)
    return None if any(opening in before for opening in openings) else end
