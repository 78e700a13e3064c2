"""The protocol of a convention, which describes tools as plain text, and parts of all conventions.

A convention asks the model for a form that a rescue syntax reads, and writes the calls of the
history in the same form, so that they serve as examples. All output

- depends on the arguments alone, so that a prompt keeps its bytes from turn to turn;
- holds a call so that the reader recovers the same call;
- encodes names, arguments and results so that none of them can close the form around it: in JSON
  a mark can occur only in a string, and there its first character is escaped.
"""

from collections.abc import Iterable, Sequence
from typing import Protocol

from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.conversation.tools import Tool, ToolCall
from proxy.guardrails.rescue.formats import ConventionTexts
from proxy.guardrails.transcript import parse_arguments


class Convention(Protocol):
    """One way to describe tools in a prompt; profiles refer to it by its `name`.

    The rescue `syntaxes` that read its form are tried first. A reply ends at one of `stops`,
    because the model only invents text after them. An `answer_label` precedes answers in the
    history, unless plain prose is an answer.
    """

    name: str
    syntaxes: tuple[str, ...]
    stops: tuple[str, ...] = ()
    answer_label: str = ""

    def describe(self, tools: Sequence[Tool], respond: Tool | None) -> str:
        """Write the instructions and the tools; `respond` is the synthetic tool, if offered."""

    def write_calls(self, text: str, calls: Sequence[ToolCall]) -> str:
        """Write an assistant message with `text` and `calls`."""

    def write_result(self, name: str, call_id: str, text: str) -> str:
        """Write the result of the call `call_id` of the tool `name`."""


def escape(document: str, marks: Iterable[str]) -> str:
    for mark in marks:
        document = document.replace(mark, f"\\u{ord(mark[0]):04x}{mark[1:]}")
    return document


def write_tools(tools: Sequence[Tool], marks: Iterable[str], separator: str = "\n") -> str:
    return separator.join(escape(tool.source.decode(), marks) for tool in tools)


class CallingConvention(Convention):
    """A convention of formats.toml without a form for answers: the synthetic tool replaces it."""

    def __init__(self, texts: ConventionTexts) -> None:
        self.name, self.syntaxes = texts.name, texts.syntaxes
        self._texts = texts

    def describe(self, tools: Sequence[Tool], respond: Tool | None) -> str:
        shown = tools if respond is None else (*tools, respond)
        text = self._texts.instructions % write_tools(
            shown, self._texts.marks, self._texts.between_tools
        )
        if respond is None:
            return text
        return f"{text} Every reply is a call: to answer the user, call {respond.name}."

    def write_calls(self, text: str, calls: Sequence[ToolCall]) -> str:
        calls_text = self._texts.calls % self._texts.between_calls.join(
            map(self._write_call, calls)
        )
        return f"{text}\n\n{calls_text}" if text.strip() else calls_text

    def write_result(self, name: str, call_id: str, text: str) -> str:
        return self._texts.result % {
            "quoted": self._quote(name),
            "content": write_content(text, self._texts.marks),
            "id": self._write_id("call_id", call_id),
        }

    def _write_call(self, call: ToolCall) -> str:
        return self._texts.call % {
            "name": call.name,
            "quoted": self._quote(call.name),
            "arguments": write_arguments(call, self._texts.marks),
            "id": self._write_id("id", call.id),
        }

    def _write_id(self, member: str, call_id: str) -> str:
        return f', "{member}": {self._quote(call_id)}' if call_id else ""

    def _quote(self, text: str) -> str:
        return escape(json.dump_text(text), self._texts.marks)


def write_arguments(call: ToolCall, marks: Iterable[str]) -> str:
    """Write the arguments object of a call, unchanged if they are valid."""
    if parse_arguments(call.arguments) is not None:
        return escape(call.arguments.strip() or "{}", marks)
    # Broken arguments would teach the model to write broken calls.
    kept: JsonObject = {"unparsable": call.arguments}
    return escape(json.dump_text(kept), marks)


def write_content(result: str, marks: Iterable[str]) -> str:
    """Write a result as JSON: unchanged if it is an object or a list, otherwise as a string."""
    try:
        is_structure = isinstance(json.parse(result), dict | list)
    except ValueError:
        is_structure = False
    return escape(result.strip() if is_structure else json.dump_text(result), marks)
