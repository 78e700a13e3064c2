"""The items of an input as messages in the language of backends.

Thoughts, a message and calls in a row are one message of the assistant; thoughts or a message
behind a message or a call begin the next, so that no later item alters an earlier message.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from proxy.conversation.messages import Message
from proxy.dialects.foreign_history import Call, ForeignHistory, Part, is_replayed
from proxy.dialects.openai_responses.calls import arguments_in, flat_name
from proxy.dialects.openai_responses.contents import read_content, texts_in
from proxy.dialects.openai_responses.coverage import ITEMS, is_dropped, refusal
from proxy.dialects.openai_responses.remains import remains_of
from proxy.dialects.openai_responses.results import is_failure, result_in
from proxy.dialects.openai_responses.tools import ToolTable
from proxy.dialects.raw_json import Node, Text, needed, own_text
from proxy.errors import InvalidRequest
from proxy.facts import Fact, Omitted

_ROLES = ("user", "assistant", "system", "developer")
_NAMED_CALLS = ("function_call", "custom_tool_call")
# Calls of tools that have no name of their own, and the names under which they are offered.
_BUILT_IN_CALLS = {
    "tool_search_call": "tool_search",
    "shell_call": "shell",
    "local_shell_call": "local_shell",
    "apply_patch_call": "apply_patch",
}
_RESULTS = (
    "function_call_output",
    "custom_tool_call_output",
    "shell_call_output",
    "local_shell_call_output",
    "apply_patch_call_output",
)


@dataclass(slots=True)
class _Spoken:
    """What the assistant says in one message."""

    thoughts: list[Text] = field(default_factory=list)
    parts: list[Part] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    has_message: bool = False

    @property
    def is_more_than_thoughts(self) -> bool:
        """Whether further thoughts, or another message, belong to the next one."""
        return self.has_message or bool(self.calls)


class ItemReader:
    """Reads items in their order; tools that they bring go to the `table`."""

    def __init__(self, table: ToolTable, facts: list[Fact]) -> None:
        self._table = table
        self._facts = facts
        self._history = ForeignHistory()
        self._said: _Spoken | None = None

    def instruct(self, instructions: Text) -> None:
        """Begin with what the system says."""
        self._history.add_system([instructions])

    def read(self, node: Node) -> None:
        """Read one item."""
        members = node.members()
        kind = members["type"].text().text if "type" in members else "message"
        if kind == "message":
            self._read_message(members, node.path)
        elif kind == "reasoning":
            self._read_thoughts(members)
        elif kind in _NAMED_CALLS or kind in _BUILT_IN_CALLS:
            self._read_call(kind, members, node.path)
        elif kind in _RESULTS:
            self._read_result(kind, members)
        else:
            self._read_other(kind, members, node.path)

    def messages(self) -> tuple[Message, ...]:
        """Return all messages; nothing may be read afterwards."""
        self._end_saying()
        return self._history.messages()

    def _read_message(self, members: dict[str, Node], path: str) -> None:
        role = needed(members, "role", path).text().text
        if role not in _ROLES:
            expected = ", ".join(_ROLES)
            raise InvalidRequest(f"Expected one of {expected}, got {role[:40]!r}.", f"{path}.role")
        content = members.get("content")
        if role == "assistant":
            self._say(read_content(content, self._facts))
            return
        self._end_saying()
        if role == "user":
            self._history.add_user(read_content(content, self._facts))
        else:
            self._history.add_system(texts_in(content, self._facts), role)

    def _say(self, parts: list[Part]) -> None:
        said = self._next_said()
        said.parts, said.has_message = parts, True

    def _next_said(self) -> _Spoken:
        """Return the message that the assistant goes on with, or begins."""
        if self._said is not None and self._said.is_more_than_thoughts:
            self._end_saying()
        if self._said is None:
            self._said = _Spoken()
        return self._said

    def _read_thoughts(self, members: Mapping[str, Node]) -> None:
        nothing: list[Fact] = []
        texts = texts_in(members.get("content"), nothing)
        texts = texts or texts_in(members.get("summary"), nothing)
        signature = (
            members["encrypted_content"].text().text if "encrypted_content" in members else ""
        )
        if is_replayed("".join(text.text for text in texts), signature):
            self._next_said().thoughts += texts

    def _read_call(self, kind: str, members: dict[str, Node], path: str) -> None:
        if kind in _NAMED_CALLS:
            name = needed(members, "name", path).text()
            if "namespace" in members:
                name = own_text(flat_name(members["namespace"].text().text, name.text))
        else:
            name = own_text(_BUILT_IN_CALLS[kind])
        call_id = members["call_id"].text() if "call_id" in members else None
        if self._said is None:
            self._said = _Spoken()
        self._said.calls.append(Call(call_id, name, arguments_in(kind, members)))

    def _read_result(self, kind: str, members: Mapping[str, Node]) -> None:
        self._end_saying()
        told = members.get("id" if kind == "local_shell_call_output" else "call_id")
        parts = result_in(kind, members.get("output"), self._facts)
        call_id = None if told is None else told.text()
        self._history.add_result(call_id, parts, is_error=is_failure(kind, members))

    def _read_other(self, kind: str, members: dict[str, Node], path: str) -> None:
        if (remedy := refusal(ITEMS, kind)) is not None:
            raise InvalidRequest(f"Items of the type {kind!r} are not supported. {remedy}", path)
        match kind:
            case "tool_search_output":
                self._read_found(members)
            case "additional_tools":
                self._table.find(members.get("tools"))
            case "configuration_update":
                pass
            case _:
                self._leave_out(kind, members)

    def _read_found(self, members: Mapping[str, Node]) -> None:
        """Take the tools that a search has found, and tell the model so where it asked for it."""
        names = self._table.find(members.get("tools"))
        if "call_id" in members:
            self._end_saying()
            text = f"Available now: {', '.join(names)}." if names else "No tools were found."
            self._history.add_result(members["call_id"].text(), [own_text(text)])

    def _leave_out(self, kind: str, members: Mapping[str, Node]) -> None:
        """Leave out what another server has run, but for what it says in the open."""
        self._facts.append(Omitted(kind if is_dropped(ITEMS, kind) else "unknown_item"))
        if (text := remains_of(kind, members)) is not None:
            self._say([text])

    def _end_saying(self) -> None:
        said, self._said = self._said, None
        if said is not None and (said.thoughts or said.is_more_than_thoughts):
            self._history.add_assistant(said.parts, said.thoughts, said.calls)
