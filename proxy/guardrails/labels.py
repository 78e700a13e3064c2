r"""Splits a reply into thoughts, actions and the final answer while it arrives.

Only replies to the ReAct prompt are split, because it demands lines with labels. Labels are
recognized at the start of a line. Text before the first label is unchanged. Text after an invented
result is dropped. For example:

    Thought: I need the time.     ReasoningDelta("I need the time.")
    Action: get_time              TextDelta("Action: get_time\n"), which the scanner reads
    Observation: 12:00            InventedResult()
"""

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import msgspec

from proxy.conversation.replies import ReasoningDelta, TextDelta
from proxy.guardrails.rescue.marks import OBSERVATION


class FinalAnswer(msgspec.Struct, frozen=True):
    """The next part of the answer to the user."""

    text: str


class InventedResult(msgspec.Struct, frozen=True):
    """The model wrote the result of a tool itself; the rest of the reply is dropped."""


LabeledPart: TypeAlias = ReasoningDelta | TextDelta | FinalAnswer | InventedResult


_LabeledState: TypeAlias = Literal[
    "plain", "thought", "name", "action", "answer", "nothing", "invented"
]


_THOUGHT, _ACTION = "Thought:", "Action:"
_ANSWER = "Final Answer:"
_LABELS = (_THOUGHT, _ACTION, _ANSWER, OBSERVATION)
_PARTS: dict[str, _LabeledState] = {_THOUGHT: "thought", _ACTION: "name", _ANSWER: "answer"}
_LONGEST = max(map(len, _LABELS))
_DEEPEST = 8  # spaces before a label; a deeper label is part of a list or of code
# A model may write the label of an action although it takes no action: `Action: None`.
_NO_ACTION = frozenset(("", "none", "null", "n/a", "no action", "none needed"))
_SPACE = " \t\r\n"


@dataclass(slots=True)
class LabelSplitter:
    """Splits one reply into parts, each of which begins with a label.

    White space is held until more text of the same part follows, and dropped at the end of the
    part. `_has_begun` is true if the current part has text besides white space. `_has_acted` is
    true if the reply has an action. The action has not run, so a later observation or answer is
    invented.
    """

    _part: _LabeledState = "plain"
    _held: str = ""
    _is_line_start: bool = True
    _has_acted: bool = False
    _has_thought: bool = False
    _ends_line: bool = True
    _has_begun: bool = True
    _space: list[str] = field(default_factory=list)
    _name: list[str] = field(default_factory=list)
    _pieces: list[LabeledPart] = field(default_factory=list)

    def feed(self, text: str) -> list[LabeledPart]:
        return self._read(self._held + text, is_finished=False)

    def finish(self) -> list[LabeledPart]:
        """Return the held text. White space at its end is kept only in plain text."""
        held, self._held = self._held, ""
        pieces = self._read(held, is_finished=True)
        if self._part == "name":
            self._end_name()
        if self._part == "plain":
            self._flush()
        return pieces + self._pieces

    def _read(self, text: str, *, is_finished: bool) -> list[LabeledPart]:
        position = 0
        while position < len(text) and self._part != "invented":
            if self._is_line_start:
                label = self._label_at(text, position, is_finished=is_finished)
                if label is None:
                    break
                position += len(label)
                self._is_line_start = False
                self._enter(label.strip())
                continue
            end = text.find("\n", position) + 1 or len(text)
            self._add(text[position:end])
            self._is_line_start = text[end - 1] == "\n"
            position = end
        self._held = "" if self._part == "invented" else text[position:]
        pieces, self._pieces = self._pieces, []
        return pieces

    def _label_at(self, text: str, start: int, *, is_finished: bool) -> str | None:
        """Return the label of a line, including its indent.

        Returns "" for a line without a label, and None if more text is needed to decide.
        """
        line_start = text[start : start + _DEEPEST + _LONGEST]
        head = line_start.lstrip(" \t")
        indent = len(line_start) - len(head)
        if indent > _DEEPEST or self._part == "answer":
            return ""
        for label in _LABELS:
            if head.startswith(label):
                return line_start[: indent + len(label)]
        is_open = any(label.startswith(head) for label in _LABELS)
        return None if is_open and not is_finished else ""

    def _enter(self, label: str) -> None:
        """Begin the part of a label. Without a known label, the current part continues."""
        # The action has not run yet, so its result, or an answer from this result, is invented.
        if self._has_acted and label in (_ANSWER, OBSERVATION):
            self._begin("invented")
            self._pieces.append(InventedResult())
        elif label in _PARTS:
            self._begin(_PARTS[label])
        elif label:
            self._add(label)

    def _begin(self, part: _LabeledState) -> None:
        self._space.clear()
        self._has_begun = False
        self._part = part
        if part == "thought" and self._has_thought:
            self._emit("\n")

    def _add(self, text: str) -> None:
        if self._part == "name":
            self._name.append(text)
            if text.endswith("\n"):
                self._end_name()
        elif self._part == "action":
            self._emit(text)
        elif self._part not in ("nothing", "invented"):
            self._hold_end(text)

    def _end_name(self) -> None:
        """Begin an action, unless its name only says that there is none (`_NO_ACTION`)."""
        name = "".join(self._name)
        self._name.clear()
        self._part = "nothing"
        if name.strip(_SPACE + ".").casefold() not in _NO_ACTION:
            self._part, self._has_acted = "action", True
            self._emit(("" if self._ends_line else "\n") + _ACTION + name)

    def _hold_end(self, text: str) -> None:
        """Emit text, and hold the white space at its end; after a label, drop it at the start."""
        words = text.rstrip(_SPACE)
        space = text[len(words) :]
        if words:
            words = words if self._has_begun else words.lstrip(_SPACE)
            self._has_begun = True
            self._flush()
            self._emit(words)
        if self._has_begun and space:
            self._space.append(space)

    def _flush(self) -> None:
        if self._space:
            self._emit("".join(self._space))
            self._space.clear()

    def _emit(self, text: str) -> None:
        if self._part == "thought":
            self._has_thought = True
            self._pieces.append(ReasoningDelta(text))
        elif self._part == "answer":
            self._pieces.append(FinalAnswer(text))
        else:
            self._ends_line = text.endswith("\n")
            self._pieces.append(TextDelta(text))
