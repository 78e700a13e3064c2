"""How the model may use the tools: what a client says, and how backends are told."""

from typing import NamedTuple

from proxy.conversation import json
from proxy.conversation.tools import NamedTool, ToolChoice, ToolUse
from proxy.dialects.openai_responses.calls import KINDS, Kind, flat_name
from proxy.dialects.openai_responses.tools import ToolTable
from proxy.dialects.raw_json import Node, needed
from proxy.errors import InvalidRequest

_PARAM = "tool_choice"
_WORDS = frozenset(use.value for use in ToolUse)
_MODES = ("auto", "required")
_NAMED = (Kind.FUNCTION.value, Kind.CUSTOM.value)


class Choice(NamedTuple):
    """How tools may be used, and the only ones that may be, where the client says so.

    `source` is the choice in the language of backends.
    """

    use: ToolChoice
    source: bytes
    allowed: frozenset[str] | None = None


def read_choice(node: Node | None, table: ToolTable) -> Choice | None:
    """Read a client's choice; None where it makes none."""
    if node is None:
        return None
    choice = _read(node, table)
    if not table.tools and choice.use not in (ToolUse.AUTO, ToolUse.NONE):
        raise InvalidRequest("It asks for a tool call, but no tool is offered.", _PARAM)
    return choice


def _read(node: Node, table: ToolTable) -> Choice:
    if node.is_text:
        return _word(node, _WORDS)
    members = node.members()
    if needed(members, "type", _PARAM).value == "allowed_tools":
        mode = _word(needed(members, "mode", _PARAM), frozenset(_MODES))
        named = [_name_in(one, table) for one in needed(members, "tools", _PARAM).elements()]
        allowed = frozenset(name for name in named if name is not None)
        if not allowed:
            raise InvalidRequest("Expected at least one tool.", f"{_PARAM}.tools")
        return mode._replace(allowed=allowed)
    name = _name_in(node, table)
    if name is None:
        raise InvalidRequest("Nothing here runs this tool. Choose another.", f"{_PARAM}.type")
    function = json.join_object({"name": json.dump(name)})
    source = json.join_object({"type": b'"function"', "function": function})
    return Choice(NamedTool(name), source)


def _word(node: Node, known: frozenset[str]) -> Choice:
    word = node.text()
    if word.text not in known:
        expected = ", ".join(sorted(known))
        raise InvalidRequest(f"Expected one of {expected}, got {word.text[:40]!r}.", node.path)
    return Choice(ToolUse(word.text), json.dump(word.text))


def _name_in(node: Node, table: ToolTable) -> str | None:
    """Return the name under which a chosen tool is offered; None for one that was left out."""
    members = node.members()
    kind = needed(members, "type", node.path).text().text
    if table.is_left_out(kind):
        return None
    if kind not in KINDS:
        problem = f"Tools of the type {kind[:40]!r} cannot be chosen: nothing here runs them."
        raise InvalidRequest(problem, f"{node.path}.type")
    if kind not in _NAMED:
        return _offered(kind, table, f"{node.path}.type")
    namespace = members["namespace"].text().text if "namespace" in members else None
    name = needed(members, "name", node.path)
    return _offered(flat_name(namespace, name.text().text), table, name.path)


def _offered(name: str, table: ToolTable, path: str) -> str:
    if name not in table.origins:
        known = ", ".join(table.origins) or "none"
        raise InvalidRequest(f"There is no tool {name!r} among the offered ones: {known}.", path)
    return name
