"""Defines conventions, which describe tools as plain text, and functions that they share.

A convention prescribes a format for calls that a rescue syntax reads. Calls in the history are
written in the same format, so that they serve as examples. The output

- depends only on the arguments, so that the bytes of a prompt do not change between turns;
- contains a call in such a way that the syntax reads the same call;
- escapes the marks of the format in names, arguments and results, so that no value can close its
  call: in JSON a mark occurs only in a string, and the first character of the mark is escaped.
"""

from collections.abc import Iterable, Sequence
from typing import Protocol

from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.conversation.tools import Tool, ToolCall
from proxy.guardrails.rescue.formats import ConventionTexts
from proxy.guardrails.transcript import parse_arguments


class Convention(Protocol):
    """A format for tools and calls in a prompt; profiles refer to it by its `name`.

    - `syntaxes`: the rescue syntaxes that read its calls; they are tried first
    - `stops`: a reply ends at one of these strings, because the model would invent the text after
      it
    - `answer_label`: precedes answers in the history; "" if an answer is plain prose
    """

    name: str
    syntaxes: tuple[str, ...]
    stops: tuple[str, ...] = ()
    answer_label: str = ""

    def describe(self, tools: Sequence[Tool], respond: Tool | None) -> str:
        """Write the instructions and the tools; `respond`, if offered, is the tool for answers."""

    def write_calls(self, text: str, calls: Sequence[ToolCall]) -> str:
        """Write an assistant message with `text` and `calls`."""

    def write_result(self, name: str, call_id: str, text: str) -> str:
        """Write the result of the call `call_id` of the tool `name`."""


def escape(document: str, marks: Iterable[str]) -> str:
    r"""Escape the first character of each mark in a JSON document: `</x>` to `\u003c/x>`."""
    for mark in marks:
        document = document.replace(mark, f"\\u{ord(mark[0]):04x}{mark[1:]}")
    return document


def write_tools(tools: Sequence[Tool], marks: Iterable[str], separator: str = "\n") -> str:
    return separator.join(escape(tool.source.decode(), marks) for tool in tools)


class CallingConvention(Convention):
    """A convention of formats.toml. Answers are plain prose, or calls of the tool `respond`."""

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
    """Write the arguments of a call as a JSON object. Valid arguments are only escaped."""
    if parse_arguments(call.arguments) is not None:
        return escape(call.arguments.strip() or "{}", marks)
    # If broken arguments were written, they would be an example of broken calls.
    arguments: JsonObject = {"unparsable": call.arguments}
    return escape(json.dump_text(arguments), marks)


def write_content(result: str, marks: Iterable[str]) -> str:
    """Write a result as JSON: an object or a list as it is, other text as a string."""
    try:
        is_structure = isinstance(json.parse(result), dict | list)
    except ValueError:
        is_structure = False
    return escape(result.strip() if is_structure else json.dump_text(result), marks)
