"""Splits a reply in labeled lines while it arrives: thoughts, actions and the final answer.

Only a model that was asked for such lines writes them, so no other reply is read like this. A label
counts at the start of a line. Text without labels stays as it is; text after an invented result is
dropped.
"""

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import msgspec

from proxy.conversation.replies import ReasoningDelta, TextDelta
from proxy.guardrails.rescue.marks import OBSERVATION


class FinalAnswer(msgspec.Struct, frozen=True):
    """More of the answer to the user."""

    text: str


class InventedResult(msgspec.Struct, frozen=True):
    """The model goes on as if a tool had been run; nothing of it counts."""


LabeledPart: TypeAlias = ReasoningDelta | TextDelta | FinalAnswer | InventedResult


_LabeledState: TypeAlias = Literal[
    "plain", "thought", "name", "action", "answer", "nothing", "invented"
]


_THOUGHT, _ACTION = "Thought:", "Action:"
_ANSWER = "Final Answer:"
_LABELS = (_THOUGHT, _ACTION, _ANSWER, OBSERVATION)
_PARTS: dict[str, _LabeledState] = {_THOUGHT: "thought", _ACTION: "name", _ANSWER: "answer"}
_LONGEST = max(map(len, _LABELS))
_DEEPEST = 8  # spaces before a label
_NO_ACTION = frozenset(("", "none", "null", "n/a", "no action", "none needed"))
_SPACE = " \t\r\n"


@dataclass(slots=True)
class LabelSplitter:
    """Splits one reply; white space at the end of a part is held back and dropped with it."""

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
        """Return what was held back; only plain text keeps the white space at its end."""
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
            self._say(text[position:end])
            self._is_line_start = text[end - 1] == "\n"
            position = end
        self._held = "" if self._part == "invented" else text[position:]
        pieces, self._pieces = self._pieces, []
        return pieces

    def _label_at(self, text: str, start: int, *, is_finished: bool) -> str | None:
        """Return the label of a line and the spaces before it; None if it may still come."""
        sight = text[start : start + _DEEPEST + _LONGEST]
        head = sight.lstrip(" \t")
        indent = len(sight) - len(head)
        if indent > _DEEPEST or self._part == "answer":
            return ""
        for label in _LABELS:
            if head.startswith(label):
                return sight[: indent + len(label)]
        is_open = any(label.startswith(head) for label in _LABELS)
        return None if is_open and not is_finished else ""

    def _enter(self, label: str) -> None:
        """Begin the part of a label; a line without one belongs to the part before."""
        if self._has_acted and label in (_ANSWER, OBSERVATION):
            self._begin("invented")
            self._pieces.append(InventedResult())
        elif label in _PARTS:
            self._begin(_PARTS[label])
        elif label:
            self._say(label)

    def _begin(self, part: _LabeledState) -> None:
        self._space.clear()
        self._has_begun = False
        self._part = part
        if part == "thought" and self._has_thought:
            self._tell("\n")

    def _say(self, text: str) -> None:
        if self._part == "name":
            self._name.append(text)
            if text.endswith("\n"):
                self._end_name()
        elif self._part == "action":
            self._tell(text)
        elif self._part not in ("nothing", "invented"):
            self._hold_end(text)

    def _end_name(self) -> None:
        """Begin an action, unless the model only says that there is none."""
        name = "".join(self._name)
        self._name.clear()
        self._part = "nothing"
        if name.strip(_SPACE + ".").casefold() not in _NO_ACTION:
            self._part, self._has_acted = "action", True
            self._tell(("" if self._ends_line else "\n") + _ACTION + name)

    def _hold_end(self, text: str) -> None:
        """Emit a piece of a part, without white space at its end or right after a label."""
        said = text.rstrip(_SPACE)
        behind = text[len(said) :]
        if said:
            said = said if self._has_begun else said.lstrip(_SPACE)
            self._has_begun = True
            self._flush()
            self._tell(said)
        if self._has_begun and behind:
            self._space.append(behind)

    def _flush(self) -> None:
        if self._space:
            self._tell("".join(self._space))
            self._space.clear()

    def _tell(self, text: str) -> None:
        if self._part == "thought":
            self._has_thought = True
            self._pieces.append(ReasoningDelta(text))
        elif self._part == "answer":
            self._pieces.append(FinalAnswer(text))
        else:
            self._ends_line = text.endswith("\n")
            self._pieces.append(TextDelta(text))
