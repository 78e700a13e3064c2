"""The tools of a request: what the model is offered, and what each is to the client."""

from dataclasses import dataclass
from typing import NamedTuple

from proxy.conversation import json
from proxy.conversation.document_cache import DocumentCache
from proxy.conversation.tools import NamedTool, Tool, ToolChoice, ToolUse
from proxy.dialects.foreign_history import write_tool
from proxy.dialects.openai_chat.decode import check_name
from proxy.dialects.openai_responses.client_tools import (
    KINDS,
    Kind,
    Origin,
    Shown,
    built_in,
    custom,
    flat_name,
    function,
    search,
)
from proxy.dialects.openai_responses.table import TOOLS
from proxy.dialects.raw_json import Node, Text, concatenate, own_text, require
from proxy.errors import InvalidRequest
from proxy.facts import Fact, Omitted

_PARAGRAPH = own_text("\n\n")
_TOOL = "tool"  # the place of a tool before it is known where in a request it stands


class _Namespace(NamedTuple):
    """What its members have in common."""

    name: str
    description: Text | None


class _Read(NamedTuple):
    """A tool as it was read; one that `waits` is offered once somebody has found it."""

    tool: Tool
    origin: Origin
    path: str
    waits: bool


class ToolTable:
    """Takes tools in the order in which they are named; `facts` tell which were left out."""

    def __init__(self, facts: list[Fact]) -> None:
        self.origins: dict[str, Origin] = {}
        self._facts = facts
        self._offered: dict[str, Tool] = {}
        self._waiting: dict[str, _Read] = {}
        self._left_out: list[str] = []

    @property
    def tools(self) -> tuple[Tool, ...]:
        """All tools that are offered: those found later stand behind the others."""
        return tuple(self._offered.values())

    def offer(self, tools: Node | None) -> None:
        """Take the tools of the request."""
        for node in [] if tools is None else tools.elements():
            for read in self._read(node):
                name = read.tool.name
                if name in self._offered or name in self._waiting:
                    raise InvalidRequest(f"Two tools are named {name!r}. Rename one.", read.path)
                if read.waits:
                    self._waiting[name] = read
                else:
                    self._add(read)

    def find(self, tools: Node | None) -> list[str]:
        """Take tools that were found, or added, amid the conversation; returns their names."""
        names: list[str] = []
        for node in [] if tools is None else tools.elements():
            for read in self._read(node):
                name = read.tool.name
                names.append(name)
                if name not in self._offered:
                    self._add(self._waiting.pop(name, read))
        return names

    def check(self, path: str = "tools") -> None:
        """Raise `InvalidRequest` if nothing is left of the tools but what nobody here can run."""
        if self._left_out and not self._offered and not self._waiting:
            kind = self._left_out[0]
            problem = f"A tool of the type {kind!r} is of no use alone: nothing here runs it."
            raise InvalidRequest(f"{problem} Offer a function that you run yourself.", path)

    def is_left_out(self, kind: str) -> bool:
        """Return whether a tool of this type was offered and left out."""
        return kind in self._left_out

    def _add(self, read: _Read) -> None:
        self._offered[read.tool.name] = read.tool
        self.origins[read.tool.name] = read.origin

    def _read(self, node: Node) -> list[_Read]:
        kind = node.object().get("type")
        if not isinstance(kind, str) or not TOOLS.drops(kind):
            return _read_tools(node)
        self._left_out.append(kind)
        self._facts.append(Omitted("web_search"))
        return []


def _read_tools(node: Node) -> list[_Read]:
    """Read a tool, or several in a namespace; clients send the same ones with every request."""
    try:
        found = _read_all(node.source)
    except InvalidRequest as refused:
        raise InvalidRequest(refused.problem, _path_in(refused.param or _TOOL, node)) from None
    return [read._replace(path=_path_in(read.path, node)) for read in found]


@DocumentCache
def _read_all(source: bytes) -> list[_Read]:
    definitions = _definitions_in(Node(json.parse(source), source, _TOOL))
    return [one.read() for one in definitions]


def _path_in(path: str, node: Node) -> str:
    """Return where something is in a request, from where it is in a tool."""
    return node.path + path.removeprefix(_TOOL)


@dataclass(frozen=True, slots=True)
class _Definition:
    """A tool as the client wrote it, alone or in a namespace."""

    kind: Kind
    members: dict[str, Node]
    path: str
    namespace: _Namespace | None = None

    def read(self) -> _Read:
        """Return it as a function; raises `InvalidRequest`."""
        origin = self._origin()
        name = flat_name(origin.namespace, origin.name)
        shown, strict = self._show(), self.members.get("strict")
        source = write_tool(
            own_text(name),
            description=self._describe(shown.description),
            parameters=shown.parameters,
            strict=None if strict is None or self.kind is not Kind.FUNCTION else strict.source,
        )
        waits = "defer_loading" in self.members and self.members["defer_loading"].value is True
        return _Read(Tool(name, shown.checked, source), origin, self.path, waits)

    def _origin(self) -> Origin:
        if self.kind not in (Kind.FUNCTION, Kind.CUSTOM):
            return Origin(self.kind, self.kind.value)
        name = require(self.members, "name", self.path).text().text
        check_name(name, f"{self.path}.name")
        return Origin(self.kind, name, None if self.namespace is None else self.namespace.name)

    def _show(self) -> Shown:
        match self.kind:
            case Kind.FUNCTION:
                return function(self.members)
            case Kind.CUSTOM:
                return custom(self.members)
            case Kind.SEARCH:
                return search(self.members, self.path)
            case _:
                return built_in(self.kind, self.members, self.path)

    def _describe(self, description: Text | None) -> Text | None:
        """Put what is said of the namespace before what is said of its member."""
        common = None if self.namespace is None else self.namespace.description
        if common is None or description is None:
            return description or common
        return concatenate(common, _PARAGRAPH, description)


def _definitions_in(node: Node) -> list[_Definition]:
    members = node.members()
    kind = require(members, "type", node.path).text().text
    if kind != "namespace":
        return [_Definition(_kind_of(kind, node.path), members, node.path)]
    name = require(members, "name", node.path).text().text
    namespace = _Namespace(
        name, members["description"].text() if "description" in members else None
    )
    inner = require(members, "tools", node.path).elements()
    return [_member_of(namespace, one) for one in inner]


def _member_of(namespace: _Namespace, node: Node) -> _Definition:
    members = node.members()
    kind = require(members, "type", node.path).text().text
    if kind not in ("function", "custom"):
        problem = "A namespace holds functions and custom tools only."
        raise InvalidRequest(problem, f"{node.path}.type")
    return _Definition(Kind(kind), members, node.path, namespace)


def _kind_of(word: str, path: str) -> Kind:
    if (remedy := TOOLS.remedy(word)) is not None:
        raise InvalidRequest(f"Tools of the type {word!r} are not supported. {remedy}", path)
    if word not in KINDS:
        raise InvalidRequest(f"No type of tools is called {word!r}.", f"{path}.type")
    return Kind(word)


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
    if require(members, "type", _PARAM).value == "allowed_tools":
        mode = _word(require(members, "mode", _PARAM), frozenset(_MODES))
        named = [_name_in(one, table) for one in require(members, "tools", _PARAM).elements()]
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
    kind = require(members, "type", node.path).text().text
    if table.is_left_out(kind):
        return None
    if kind not in KINDS:
        problem = f"Tools of the type {kind[:40]!r} cannot be chosen: nothing here runs them."
        raise InvalidRequest(problem, f"{node.path}.type")
    if kind not in _NAMED:
        return _require_offered(kind, table, f"{node.path}.type")
    namespace = members["namespace"].text().text if "namespace" in members else None
    name = require(members, "name", node.path)
    return _require_offered(flat_name(namespace, name.text().text), table, name.path)


def _require_offered(name: str, table: ToolTable, path: str) -> str:
    if name not in table.origins:
        known = ", ".join(table.origins) or "none"
        raise InvalidRequest(f"There is no tool {name!r} among the offered ones: {known}.", path)
    return name
