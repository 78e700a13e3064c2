"""Converts the tools of a Responses request to functions for the model.

    {"type": "namespace", "name": "agents", "tools": [{"type": "function", "name": "spawn"}]}
    -> {"type": "function", "function": {"name": "agents__spawn", "parameters": {...}}}

Chat completions have no namespaces, so the name of a namespace becomes a prefix.
`ToolTable.origins` maps each function to the client's tool that it represents.
"""

from collections.abc import Iterator
from typing import NamedTuple

from proxy.conversation import json
from proxy.conversation.document_cache import DocumentCache
from proxy.conversation.json import JsonObject
from proxy.conversation.tools import NamedTool, Tool, ToolUse
from proxy.dialects.foreign_history import write_tool
from proxy.dialects.openai_chat.decode import ReadChoice
from proxy.dialects.openai_responses import client_tools
from proxy.dialects.openai_responses.client_tools import (
    KINDS,
    NAMED_KINDS,
    Origin,
    ToolKind,
    flat_name,
)
from proxy.dialects.openai_responses.schema import TOOLS
from proxy.dialects.raw_json import JsonText, Members, Node, concatenate, own_text
from proxy.dialects.wire_schema import check_name, check_new, check_offered
from proxy.errors import InvalidRequest
from proxy.facts import Fact, Omitted

_NAMED = tuple(kind.value for kind in NAMED_KINDS)
_WEB_SEARCH = "web_search"
_TOOL = "tool"  # the path of a tool in the cache, where its path in the request is unknown


class _Namespace(NamedTuple):
    """A namespace: the name and the description that all its tools share."""

    name: str | None = None
    description: JsonText | None = None


_NO_NAMESPACE = _Namespace()


class _ReadTool(NamedTuple):
    """A converted tool; with `is_deferred`, it is offered only after a search has returned it."""

    tool: Tool
    origin: Origin
    path: str
    is_deferred: bool


class ToolTable:
    """Collects tools in the order of the request; `facts` records the dropped tools."""

    def __init__(self, facts: list[Fact]) -> None:
        self.origins: dict[str, Origin] = {}
        self.dropped: list[str] = []
        self._facts = facts
        self._offered: dict[str, Tool] = {}
        self._deferred: dict[str, _ReadTool] = {}  # tools that no search has returned yet

    @property
    def tools(self) -> tuple[Tool, ...]:
        """All offered tools; tools from searches come last, so the prompt cache stays valid."""
        return tuple(self._offered.values())

    def offer(self, tools: Node | None) -> None:
        for converted in self._read(tools):
            name = converted.tool.name
            check_new(name, self._offered, converted.path)
            check_new(name, self._deferred, converted.path)
            if converted.is_deferred:
                self._deferred[name] = converted
            else:
                self._add(converted)

    def find(self, tools: Node | None) -> list[str]:
        """Offer tools from a search result or an `additional_tools` item; return their names."""
        names: list[str] = []
        for converted in self._read(tools):
            name = converted.tool.name
            names.append(name)
            # a search that occurs again in the history has returned the same tools
            if name not in self._offered:
                self._add(self._deferred.pop(name, converted))
        return names

    def check(self, path: str = "tools") -> None:
        """Raise `InvalidRequest` if the request has tools, but OpenAI's servers run all of them."""
        if self.dropped and not self._offered and not self._deferred:
            kind = self.dropped[0]
            problem = (
                f"A tool of the type {kind!r} cannot be the only tool: Temper does not run it."
            )
            raise InvalidRequest(f"{problem} Provide a function that you run yourself.", path)

    def _add(self, converted: _ReadTool) -> None:
        self._offered[converted.tool.name] = converted.tool
        self.origins[converted.tool.name] = converted.origin

    def _read(self, tools: Node | None) -> Iterator[_ReadTool]:
        for node in [] if tools is None else tools.elements():
            tool = node.object()
            kind = tool.get("type")
            if isinstance(kind, str) and _is_dropped(kind, tool):
                self.dropped.append(kind)
                self._facts.append(Omitted(_fact_label(kind)))
            else:
                yield from _read_tools(node)


def _is_dropped(kind: str, tool: JsonObject) -> bool:
    """Return whether a tool is dropped, because OpenAI's servers would run it.

    Codex 0.169.0 adds such tools to its requests. A tool of an unknown type without a name is also
    dropped, because the client cannot run a tool without a name.
    """
    return TOOLS.drops(kind) or (kind not in TOOLS and "name" not in tool)


def _fact_label(kind: str) -> str:
    """Return the label of a tool type in facts; unknown types share one label."""
    if kind.startswith(_WEB_SEARCH):
        return _WEB_SEARCH
    return kind if kind in TOOLS else "unknown_tool"


def _read_tools(node: Node) -> list[_ReadTool]:
    """Read a tool, or the tools of a namespace; the result is cached by the source."""
    try:
        tools = _read_all(node.source)
    except InvalidRequest as refused:
        raise InvalidRequest(refused.problem, _path_in(refused.param or _TOOL, node)) from None
    return [tool._replace(path=_path_in(tool.path, node)) for tool in tools]


@DocumentCache
def _read_all(source: bytes) -> list[_ReadTool]:
    members = Node(json.parse(source), source, _TOOL).members()
    kind = members.need("type").text().text
    if kind == "namespace":
        common = _Namespace(members.need("name").text().text, members.text("description"))
        tools = members.need("tools").elements()
        return [_read_member(member.members(), common) for member in tools]
    if (remedy := TOOLS.remedy(kind)) is not None:
        problem = f"Tools of the type {kind!r} are not supported. {remedy}"
        raise InvalidRequest(problem, members.path)
    if kind not in KINDS:
        raise InvalidRequest(f"Unknown tool type {kind!r}.", members.at("type"))
    return [_read_tool(ToolKind(kind), members)]


def _path_in(path: str, node: Node) -> str:
    """Convert a path within a cached tool to the path within the request."""
    return node.path + path.removeprefix(_TOOL)


def _read_member(members: Members, common: _Namespace) -> _ReadTool:
    kind = members.need("type").text().text
    if kind not in _NAMED:
        problem = "A namespace may contain only functions and custom tools."
        raise InvalidRequest(problem, members.at("type"))
    return _read_tool(ToolKind(kind), members, common)


def _read_tool(kind: ToolKind, members: Members, common: _Namespace = _NO_NAMESPACE) -> _ReadTool:
    """Write a client's tool as a function; raises `InvalidRequest`."""
    origin = Origin(kind, kind.value)
    if kind.value in _NAMED:
        origin = Origin(kind, members.need("name").text().text, common.name)
        check_name(origin.name, members.at("name"))
    form = client_tools.offered_form(kind, members)
    description = form.description or common.description
    # a function has no namespace, so its description includes that of the namespace
    if form.description is not None and common.description is not None:
        description = concatenate(common.description, client_tools.PARAGRAPH, form.description)
    strict = members.get("strict") if kind is ToolKind.FUNCTION else None
    name = flat_name(origin.namespace, origin.name)
    source = write_tool(
        own_text(name),
        description=description,
        parameters=form.parameters,
        strict=None if strict is None else strict.source,
    )
    is_deferred = members.value("defer_loading") is True
    return _ReadTool(Tool(name, form.checked, source), origin, members.path, is_deferred)


_PARAM = "tool_choice"
_WORDS = frozenset(use.value for use in ToolUse)
_MODES = frozenset(("auto", "required"))


def read_choice(node: Node | None, table: ToolTable) -> ReadChoice:
    """Read `tool_choice`; raises `InvalidRequest` if the tools do not allow it."""
    if node is None:
        return ToolUse.AUTO, None
    choice, allowed = _read(node, table)
    if not table.tools and choice not in (ToolUse.AUTO, ToolUse.NONE):
        raise InvalidRequest("A tool call is required, but no tool is available.", _PARAM)
    return choice, allowed


def _read(node: Node, table: ToolTable) -> ReadChoice:
    if node.is_text:
        return _word(node, _WORDS), None
    members = node.members()
    if members.need("type").value == "allowed_tools":
        mode = _word(members.need("mode"), _MODES)
        named = [_name_in(member, table) for member in members.need("tools").elements()]
        allowed = frozenset(name for name in named if name is not None)
        if not allowed:
            raise InvalidRequest("Expected at least one tool.", f"{_PARAM}.tools")
        return mode, allowed
    name = _name_in(node, table)
    if name is None:
        problem = "Temper does not run this tool. Choose another tool."
        raise InvalidRequest(problem, f"{_PARAM}.type")
    return NamedTool(name), None


def _word(node: Node, known: frozenset[str]) -> ToolUse:
    word = node.text().text
    if word not in known:
        expected = ", ".join(sorted(known))
        raise InvalidRequest(f"Expected one of {expected}, got {word[:40]!r}.", node.path)
    return ToolUse(word)


def _name_in(node: Node, table: ToolTable) -> str | None:
    """Return the function name of a chosen tool; None for a dropped tool."""
    members = node.members()
    kind = members.need("type").text().text
    if kind in table.dropped:
        return None
    if kind not in KINDS:
        problem = f"Tools of the type {kind[:40]!r} cannot be chosen: Temper does not run them."
        raise InvalidRequest(problem, members.at("type"))
    name, member = kind, "type"
    if kind in _NAMED:
        member = "name"
        namespace = members.word("namespace") if "namespace" in members else None
        name = flat_name(namespace, members.need(member).text().text)
    check_offered(name, table.origins, members.at(member))
    return name
