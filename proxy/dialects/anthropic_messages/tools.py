"""The tools of a Messages request: those that are offered, in an order that keeps what was cached.

Tools whose description is deferred come behind all others, in the order in which the history first
names them: so a tool that is found later alters nothing before it.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from proxy.conversation import json
from proxy.conversation.document_cache import DocumentCache
from proxy.conversation.json import JsonObject, JsonSchema
from proxy.conversation.tools import NamedTool, Tool, ToolChoice, ToolUse
from proxy.dialects.anthropic_messages.schema import Choice, MessagesRequest
from proxy.dialects.anthropic_messages.table import TOOLS, family_of
from proxy.dialects.foreign_history import write_tool
from proxy.dialects.openai_chat.decode import check_name
from proxy.dialects.raw_json import Node, require
from proxy.errors import InvalidRequest

_NO_PARAMETERS: JsonObject = {"type": "object", "properties": {}}
_CUSTOM = "custom"
_PLACE = "tool"  # where a tool stands while it is read on its own
_USES = {"auto": ToolUse.AUTO, "none": ToolUse.NONE, "any": ToolUse.REQUIRED}


class _Described(NamedTuple):
    """A tool, None for the search for tools; one that `waits` is offered once it is named."""

    tool: Tool | None
    waits: bool = False


class ToolSet:
    """The tools that a request describes, and those of them that are offered."""

    def __init__(self, described: Sequence[Node] = ()) -> None:
        self._known: dict[str, Tool] = {}
        self._offered: dict[str, None] = {}
        self.has_search = False
        deferred: list[str] = []
        for node in described:
            tool, waits = _describe(node)
            if tool is None:
                self.has_search = True
                continue
            if tool.name in self._known:
                problem = f"Two tools are named {tool.name!r}. Rename one."
                raise InvalidRequest(problem, f"{node.path}.name")
            self._known[tool.name] = tool
            if waits:
                deferred.append(tool.name)
            else:
                self.add(tool.name)
        if self.has_search:
            for name in deferred:
                self.add(name)

    def add(self, name: str) -> None:
        """Offer a tool that the history names; one that nobody described cannot be offered."""
        if name in self._known:
            self._offered[name] = None

    def define(self, node: Node) -> None:
        """Offer a tool that the history describes."""
        tool, _ = _describe(node)
        if tool is not None:
            self._known[tool.name] = tool
            self.add(tool.name)

    def remove(self, name: str) -> None:
        """Offer a tool no longer."""
        self._offered.pop(name, None)

    @property
    def offered(self) -> tuple[Tool, ...]:
        """The tools that the model may use, in their order."""
        return tuple(self._known[name] for name in self._offered)


def _describe(node: Node) -> _Described:
    """Read a tool; clients send the same ones with every request."""
    try:
        return _parse_description(node.source)
    except InvalidRequest as refused:
        place = (refused.param or _PLACE).removeprefix(_PLACE)
        raise InvalidRequest(refused.problem, node.path + place) from None


@DocumentCache
def _parse_description(source: bytes) -> _Described:
    node = Node(json.parse(source), source, _PLACE)
    members = node.members()
    if _is_search(members):
        return _Described(None)
    waits = "defer_loading" in members and members["defer_loading"].value is True
    return _Described(_read_tool(node, members), waits)


def _is_search(members: Mapping[str, Node]) -> bool:
    """Return whether a tool is the search for tools that Anthropic's servers run."""
    return TOOLS.drops(family_of(_type_of(members)))


def _type_of(members: Mapping[str, Node]) -> str:
    return members["type"].text().text if "type" in members else _CUSTOM


def _read_tool(node: Node, members: Mapping[str, Node]) -> Tool:
    tool_type = _type_of(members)
    if (remedy := TOOLS.remedy(family_of(tool_type))) is not None:
        raise InvalidRequest(f"Not supported: {tool_type!r}. {remedy}", f"{node.path}.type")
    name = require(members, "name", node.path).text()
    check_name(name.text, f"{node.path}.name")
    schema, strict = members.get("input_schema"), members.get("strict")
    source = write_tool(
        name,
        description=members["description"].text() if "description" in members else None,
        parameters=None if schema is None else schema.source,
        strict=None if strict is None else strict.source,
    )
    return Tool(name.text, _schema_in(schema), source)


def _schema_in(node: Node | None) -> JsonSchema:
    if node is None:
        return _NO_PARAMETERS
    return node.value if isinstance(node.value, bool) else node.object()


def choice_in(checked: MessagesRequest, tools: tuple[Tool, ...]) -> ToolChoice:
    """Read how tools may be used; raises `InvalidRequest` where that is impossible."""
    choice = checked.tool_choice
    if choice is None:
        return ToolUse.AUTO
    if not tools and choice.type in ("any", "tool"):
        raise InvalidRequest("It asks for a tool call, but `tools` is empty.", "tool_choice")
    return _find_named(choice, tools) if choice.type == "tool" else _USES[choice.type]


def _find_named(choice: Choice, tools: tuple[Tool, ...]) -> NamedTool:
    if choice.name is None:
        raise InvalidRequest("Field required", "tool_choice.name")
    names = [tool.name for tool in tools]
    if choice.name not in names:
        known = ", ".join(names)
        problem = f"There is no tool {choice.name!r} among the offered ones: {known}."
        raise InvalidRequest(problem, "tool_choice.name")
    return NamedTool(choice.name)


def write_choice(choice: ToolChoice) -> bytes:
    """Write how tools may be used in the language of backends."""
    if isinstance(choice, ToolUse):
        return json.dump(choice.value)
    return json.dump({"type": "function", "function": {"name": choice.name}})
