"""The items of an input as messages in the language of backends.

Thoughts, a message and calls in a row are one message of the assistant; thoughts or a message
behind a message or a call begin the next, so that no later item alters an earlier message.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from proxy.conversation.document_cache import KeptByDocument
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.messages import Message
from proxy.dialects.foreign_history import (
    ForeignHistory,
    HistoryCall,
    HistoryEntry,
    Part,
    is_replayed,
)
from proxy.dialects.openai_responses.client_tools import arguments_in, flat_name
from proxy.dialects.openai_responses.contents import is_failure, read_content, result_in, texts_in
from proxy.dialects.openai_responses.table import ITEMS
from proxy.dialects.openai_responses.tools import ToolTable
from proxy.dialects.raw_json import JsonText, Node, own_text, require
from proxy.errors import InvalidRequest
from proxy.facts import Fact, Omitted

_ROLES = ("user", "assistant", "system", "developer")
_SYSTEM_ROLES = ("system", "developer")
_MOST_BYTES = 4 * 2**20  # of items whose conversion is kept
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


class _Spoken(NamedTuple):
    """A part of a message of the assistant."""

    thoughts: tuple[JsonText, ...] = ()
    parts: tuple[Part, ...] = ()
    calls: tuple[HistoryCall, ...] = ()
    has_message: bool = False

    @property
    def is_more_than_thoughts(self) -> bool:
        """Whether further thoughts, or another message, belong to the next one."""
        return self.has_message or bool(self.calls)


class _Item(NamedTuple):
    """What an item becomes, whatever stands around it; `entries` are it alone.

    Without anything `spoken` it ends what the assistant says.
    """

    entries: tuple[HistoryEntry, ...] = ()
    spoken: _Spoken | None = None
    facts: tuple[Fact, ...] = ()


# Clients send the whole conversation each time.
_converted: KeptByDocument[_Item] = KeptByDocument(most=_MOST_BYTES)


class ItemReader:
    """Reads items in their order; tools that they bring go to the `table`."""

    def __init__(self, table: ToolTable, facts: list[Fact]) -> None:
        self._table = table
        self._facts = facts
        self._history = ForeignHistory()
        self._said: list[_Item] = []

    def instruct(self, instructions: JsonText) -> None:
        """Begin with what the system says."""
        self._history.add_system([instructions])

    def read(self, node: Node) -> None:
        found = _converted.find(node.source)
        if found is None:
            members = node.members()
            kind = members["type"].text().text if "type" in members else "message"
            if self._is_read_in_place(kind, members, node.path):
                return
            found = _convert(kind, members, node.path)
            _converted.keep(node.source, found)
        self._facts += found.facts
        if found.spoken is not None:
            self._say(found, found.spoken)
        elif found.entries:
            self._end_saying()
            self._history.extend(found.entries)

    def messages(self) -> tuple[Message, ...]:
        """Return all messages; nothing may be read afterwards."""
        self._end_saying()
        return self._history.messages()

    def _is_read_in_place(self, kind: str, members: dict[str, Node], path: str) -> bool:
        """Read an item that means something else elsewhere; reports whether it is one."""
        match kind:
            case "message" if (role := _role_in(members, path)) in _SYSTEM_ROLES:
                self._end_saying()
                self._history.add_system(texts_in(members.get("content"), self._facts), role)
            case "tool_search_output":
                self._read_found(members)
            case "additional_tools":
                self._table.find(members.get("tools"))
            case _:
                return False
        return True

    def _say(self, item: _Item, spoken: _Spoken) -> None:
        """Go on with a message of the assistant, or begin the next one."""
        begins = not spoken.calls
        if begins and any(one.spoken and one.spoken.is_more_than_thoughts for one in self._said):
            self._end_saying()
        self._said.append(item)

    def _read_found(self, members: Mapping[str, Node]) -> None:
        """Take the tools that a search has found, and tell the model so where it asked for it."""
        names = self._table.find(members.get("tools"))
        if "call_id" in members:
            self._end_saying()
            text = f"Available now: {', '.join(names)}." if names else "No tools were found."
            self._history.add_result(members["call_id"].text(), [own_text(text)])

    def _end_saying(self) -> None:
        said, self._said = self._said, []
        if len(said) == 1:
            self._history.extend(said[0].entries)
        elif said:
            parts = [item.spoken for item in said if item.spoken is not None]
            self._history.extend(_entries_of(_join(parts)))


def _join(parts: Sequence[_Spoken]) -> _Spoken:
    """Make one message of what the assistant says in a row."""
    return _Spoken(
        tuple(text for one in parts for text in one.thoughts),
        tuple(part for one in parts for part in one.parts),
        tuple(call for one in parts for call in one.calls),
        any(one.has_message for one in parts),
    )


def _entries_of(spoken: _Spoken) -> tuple[HistoryEntry, ...]:
    if not (spoken.thoughts or spoken.is_more_than_thoughts):
        return ()
    alone = ForeignHistory()
    alone.add_assistant(spoken.parts, spoken.thoughts, spoken.calls)
    return alone.entries


def _convert(kind: str, members: dict[str, Node], path: str) -> _Item:
    """Convert an item that means the same wherever it stands."""
    if kind == "message":
        return _message(members, path)
    if kind == "reasoning":
        return _thoughts(members)
    if kind in _NAMED_CALLS or kind in _BUILT_IN_CALLS:
        return _spoken(_Spoken(calls=(_call(kind, members, path),)))
    if kind in _RESULTS:
        return _result(kind, members)
    return _other(kind, members, path)


def _spoken(spoken: _Spoken, facts: Sequence[Fact] = ()) -> _Item:
    return _Item(_entries_of(spoken), spoken, tuple(facts))


def _role_in(members: dict[str, Node], path: str) -> str:
    role = require(members, "role", path).text().text
    if role not in _ROLES:
        expected = ", ".join(_ROLES)
        raise InvalidRequest(f"Expected one of {expected}, got {role[:40]!r}.", f"{path}.role")
    return role


def _message(members: dict[str, Node], path: str) -> _Item:
    """Convert a message of the user or the assistant."""
    facts: list[Fact] = []
    parts = read_content(members.get("content"), facts)
    if _role_in(members, path) == "assistant":
        return _spoken(_Spoken(parts=tuple(parts), has_message=True), facts)
    alone = ForeignHistory()
    alone.add_user(parts)
    return _Item(alone.entries, facts=tuple(facts))


def _thoughts(members: Mapping[str, Node]) -> _Item:
    nothing: list[Fact] = []
    texts = texts_in(members.get("content"), nothing)
    texts = texts or texts_in(members.get("summary"), nothing)
    signature = members["encrypted_content"].text().text if "encrypted_content" in members else ""
    if not is_replayed("".join(text.text for text in texts), signature):
        return _Item()
    return _spoken(_Spoken(thoughts=tuple(texts)))


def _call(kind: str, members: dict[str, Node], path: str) -> HistoryCall:
    if kind in _NAMED_CALLS:
        name = require(members, "name", path).text()
        if "namespace" in members:
            name = own_text(flat_name(members["namespace"].text().text, name.text))
    else:
        name = own_text(_BUILT_IN_CALLS[kind])
    call_id = members["call_id"].text() if "call_id" in members else None
    return HistoryCall(call_id, name, arguments_in(kind, members))


def _result(kind: str, members: Mapping[str, Node]) -> _Item:
    facts: list[Fact] = []
    told = members.get("id" if kind == "local_shell_call_output" else "call_id")
    parts = result_in(kind, members.get("output"), facts)
    alone = ForeignHistory()
    call_id = None if told is None else told.text()
    alone.add_result(call_id, parts, is_error=is_failure(kind, members))
    return _Item(alone.entries, facts=tuple(facts))


def _other(kind: str, members: dict[str, Node], path: str) -> _Item:
    """Leave out what another server has run, but for what it says in the open."""
    if (remedy := ITEMS.remedy(kind)) is not None:
        raise InvalidRequest(f"Items of the type {kind!r} are not supported. {remedy}", path)
    if kind == "configuration_update":
        return _Item()
    facts = (Omitted(kind if ITEMS.drops(kind) else "unknown_item"),)
    text = remains_of(kind, members)
    if text is None:
        return _Item(facts=facts)
    return _spoken(_Spoken(parts=(text,), has_message=True), facts)


def remains_of(kind: str, members: Mapping[str, Node]) -> JsonText | None:
    """Return the texts of such an item as one, None where it has none."""
    values: JsonObject = {name: node.value for name, node in members.items()}
    match kind:
        case "file_search_call":
            texts = [_result_text(one) for one in _objects(values.get("results"))]
        case "code_interpreter_call":
            printed = [_string(one, "logs") for one in _objects(values.get("outputs"))]
            texts = [_string(values, "code"), *printed]
        case "mcp_call":
            texts = [_string(values, "output")]
        case _:
            texts = []
    text = "\n".join(text for text in texts if text)
    return own_text(f"[{kind}]\n{text}") if text else None


def _result_text(result: JsonObject) -> str:
    return "\n".join(filter(None, (_string(result, "filename"), _string(result, "text"))))


def _objects(value: JsonValue) -> list[JsonObject]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _string(members: JsonObject, name: str) -> str:
    value = members.get(name)
    return value if isinstance(value, str) else ""
