"""Which tools of the operator a request gets: those it asks for, and whom they are for. Pure."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal, TypeAlias

from proxy.conversation.tools import Tool, WantedTools
from proxy.errors import InvalidRequest, ToolServerUnavailable, ToolsNotAllowed
from proxy.mcp.definitions import ServedTool
from proxy.mcp.execution import ToolSource

# To whom tools are offered: requests that ask, also those without tools, or all.
Offering: TypeAlias = Literal["asked", "toolless", "always"]


@dataclass(frozen=True, slots=True)
class OfferPolicy:
    """What the operator decided; no `owners` means everybody.

    `hosted` are the tools that clients declare as hosted, by the server and tool that do it.
    """

    offering: Offering = "asked"
    owners: frozenset[str] = frozenset()
    hosted: Mapping[str, tuple[str, str]] = field(default_factory=lambda: MappingProxyType({}))

    def admits(self, owner: str) -> bool:
        """Whether the owner of this key may use tools at all."""
        return not self.owners or owner in self.owners


@dataclass(frozen=True, slots=True)
class ToolOffer:
    """Offers the tools of a `source` as the operator's `policy` has it."""

    policy: OfferPolicy
    source: ToolSource

    def tools_for(
        self, own: Sequence[Tool], wanted: Sequence[WantedTools], owner: str
    ) -> tuple[ServedTool, ...]:
        """Return what stands behind a client's `own` tools, in the order of the settings.

        Of tools with one name the client's wins, then the first of those that are asked for. Raises
        `InvalidRequest` for a server that there is not, and `ToolServerUnavailable` for one that is
        named and not there.
        """
        if not self.policy.admits(owner):
            for one in wanted:  # who only declares a hosted tool does without
                if one.server:
                    raise ToolsNotAllowed(one.param)
            return ()
        offering = self.policy.offering
        is_alone = not own and not wanted
        is_for_all = offering == "always" or (offering == "toolless" and is_alone)
        asked = {(one.server, one.own_name) for each in wanted for one in self._select_wanted(each)}
        known = self._ready_tools()
        named = [one for one in known if (one.server, one.own_name) in asked]
        chosen: dict[str, ServedTool] = {}
        for one in (*named, *(known if is_for_all else ())):
            chosen.setdefault(one.tool.name, one)
        for tool in own:
            chosen.pop(tool.name, None)
        return tuple(one for one in known if chosen.get(one.tool.name) is one)

    def _ready_tools(self) -> list[ServedTool]:
        source = self.source
        return [one for server in source.names for one in source.tools_of(server) or ()]

    def _select_wanted(self, wanted: WantedTools) -> Collection[ServedTool]:
        if not wanted.server:
            # agents declare one in every request: without the server they do without the tool
            named = self.policy.hosted[wanted.kind]
            return [one for one in self._ready_tools() if (one.server, one.own_name) == named]
        if wanted.server not in self.source.names:
            known = ", ".join(self.source.names)
            problem = f"There is no tool server {wanted.server!r}; there are: {known}."
            raise InvalidRequest(problem, f"{wanted.param}.server_label")
        tools = self.source.tools_of(wanted.server)
        if tools is None:
            raise ToolServerUnavailable(wanted.server)
        if not tools:
            problem = f"Nothing of the tool server {wanted.server!r} is offered."
            raise InvalidRequest(problem, f"{wanted.param}.server_label")
        if wanted.allowed is None:
            return tools
        names = {name for one in tools for name in (one.own_name, one.tool.name)}
        for place, name in enumerate(wanted.allowed):
            if name not in names:
                problem = f"The tool server {wanted.server!r} offers no tool {name!r}."
                raise InvalidRequest(problem, f"{wanted.param}.allowed_tools.{place}")
        return [one for one in tools if {one.own_name, one.tool.name} & {*wanted.allowed}]
