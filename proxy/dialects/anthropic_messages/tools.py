"""The offered tools of a Messages request, in an order that keeps the prompt cache.

    {"name": "read", "description": "Read a file.", "input_schema": {"type": "object"}}
    -> {"type": "function", "function": {"name": "read", "description": "Read a file.",
        "parameters": {"type": "object"}}}

Tools with `defer_loading` come last, in the order in which the history first names them. So when a
search finds another tool, the prompt before that tool does not change.
"""

from collections.abc import Sequence
from typing import TypeAlias

from proxy.conversation import json
from proxy.conversation.document_cache import DocumentCache
from proxy.conversation.json import JsonSchema
from proxy.conversation.tools import NamedTool, Tool, ToolChoice, ToolUse
from proxy.dialects.anthropic_messages.schema import MessagesRequest
from proxy.dialects.anthropic_messages.table import TOOLS, family_of
from proxy.dialects.foreign_history import write_tool
from proxy.dialects.raw_json import Node
from proxy.dialects.wire_schema import NO_PARAMETERS, check_name, check_new, check_offered
from proxy.errors import InvalidRequest
from proxy.facts import Omitted

# A placeholder for the path of a cached tool; `_describe` replaces it with the path in the request.
_CACHED_PATH = "tool"
_USES = {"auto": ToolUse.AUTO, "none": ToolUse.NONE, "any": ToolUse.REQUIRED}


# A tool, or the family name of a tool that Anthropic's servers would run; and whether it is
# deferred.
_Described: TypeAlias = tuple[Tool | str, bool]
_SEARCH, _UNKNOWN = "tool_search", "unknown_tool"


class ToolSet:
    """The tools that a request describes, and the subset that is offered.

    Claude Code adds tools to its requests that Anthropic's servers would run. They are dropped
    instead of refused, so that these requests succeed. Raises `InvalidRequest` if no other tool
    remains.
    """

    def __init__(self, described: Sequence[Node] = ()) -> None:
        self._known: dict[str, Tool] = {}
        self._offered: dict[str, None] = {}
        self._dropped: dict[str, None] = {}
        deferred: list[str] = []
        for node in described:
            tool, is_deferred = _describe(node)
            if isinstance(tool, str):
                self._dropped[tool] = None
                continue
            check_new(tool.name, self._known, f"{node.path}.name")
            self._known[tool.name] = tool
            if is_deferred:
                deferred.append(tool.name)
            else:
                self.add(tool.name)
        if self._dropped and not self._known and _SEARCH not in self._dropped:
            first = next(iter(self._dropped))
            problem = f"Temper does not run the tool {first!r}. Provide a custom tool."
            raise InvalidRequest(problem, "tools")
        if _SEARCH in self._dropped:  # the model cannot search, so it must see all tools
            for name in deferred:
                self.add(name)

    def add(self, name: str) -> None:
        """Offer a tool that the history names, if the request describes it."""
        if name in self._known:
            self._offered[name] = None

    def define(self, node: Node) -> None:
        tool, _ = _describe(node)
        if isinstance(tool, Tool):
            self._known[tool.name] = tool
            self.add(tool.name)

    def remove(self, name: str) -> None:
        self._offered.pop(name, None)

    @property
    def offered(self) -> tuple[Tool, ...]:
        return tuple(self._known[name] for name in self._offered)

    @property
    def facts(self) -> tuple[Omitted, ...]:
        return tuple(map(Omitted, self._dropped))


def _describe(node: Node) -> _Described:
    """Read a tool; the result is cached by the source of the tool."""
    try:
        return _parse_description(node.source)
    except InvalidRequest as refused:
        path = (refused.param or _CACHED_PATH).removeprefix(_CACHED_PATH)
        raise InvalidRequest(refused.problem, node.path + path) from None


@DocumentCache
def _parse_description(source: bytes) -> _Described:
    members = Node(json.parse(source), source, _CACHED_PATH).members()
    tool_type = members.word("type", "custom")
    family = family_of(tool_type)
    if TOOLS.drops(family) and "input_schema" not in members:
        if family.startswith(_SEARCH):
            return _SEARCH, False
        return (family if family in TOOLS else _UNKNOWN), False
    if (remedy := TOOLS.remedy(family)) is not None:
        raise InvalidRequest(f"Not supported: {tool_type!r}. {remedy}", members.at("type"))
    name, schema = members.need("name").text(), members.get("input_schema")
    check_name(name.text, members.at("name"))
    function = write_tool(
        name,
        description=members.text("description"),
        parameters=None if schema is None else schema.source,
        strict=members["strict"].source if "strict" in members else None,
    )
    parameters: JsonSchema = NO_PARAMETERS
    if schema is not None:
        parameters = schema.value if isinstance(schema.value, bool) else schema.object()
    return Tool(name.text, parameters, function), members.value("defer_loading") is True


def choice_in(checked: MessagesRequest, tools: tuple[Tool, ...]) -> ToolChoice:
    """Read `tool_choice`; raises `InvalidRequest` if these tools do not allow it."""
    choice = checked.tool_choice
    if choice is None:
        return ToolUse.AUTO
    if not tools and choice.type in ("any", "tool"):
        raise InvalidRequest("A tool call is required, but `tools` is empty.", "tool_choice")
    if choice.type != "tool":
        return _USES[choice.type]
    if choice.name is None:
        raise InvalidRequest("Field required", "tool_choice.name")
    check_offered(choice.name, [tool.name for tool in tools], "tool_choice.name")
    return NamedTool(choice.name)
