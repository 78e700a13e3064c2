"""Starts the configured tool servers; imports the package only if the settings require tools."""

from dataclasses import replace
from typing import TYPE_CHECKING

from proxy.settings import Settings

if TYPE_CHECKING:
    from proxy.inference.kept_reasoning import ReasoningStore
    from proxy.mcp.confirmations import Confirmations
    from proxy.mcp.fleet import ToolServerFleet
    from proxy.mcp.hosting import ToolHosting


class LazyToolServers:
    """The tool servers of the current settings."""

    def __init__(self) -> None:
        self._fleet: ToolServerFleet | None = None
        self._confirmations: Confirmations | None = None
        self._rounds: ReasoningStore | None = None

    def apply(self, settings: Settings) -> "ToolHosting | None":
        """Start new servers and stop removed servers, at the start and after each reload.

        Returns the tools for requests, or None if there are none. Does not wait for the servers.
        Raises `InvalidConfiguration` if the MCP SDK is not installed.
        """
        context, is_guarded = settings.context, settings.guardrails.mode == "on"
        summarized_from = context.summarized_tools if is_guarded else 0
        recalls = context.recall and context.compaction == "auto" and is_guarded
        has_built_in = bool(summarized_from) or recalls
        if self._fleet is None and not (settings.mcp or has_built_in):
            return None
        from proxy.mcp.built_in import NoToolServers
        from proxy.mcp.hosting import hosting_of, specs_of

        specs = specs_of(settings)
        if self._fleet is None and specs:
            from proxy.mcp.fleet import ToolServerFleet

            self._fleet = ToolServerFleet()
        if self._fleet is not None:
            self._fleet.renew(specs)
        source = self._fleet or NoToolServers()
        hosting = hosting_of(settings.tools, source, self._confirmations)
        self._confirmations = hosting.confirmations  # waiting calls survive a reload
        self._rounds = self._rounds or hosting.rounds_store
        hosting = replace(
            hosting,
            summarized_from=summarized_from,
            recalls=recalls,
            rounds_store=self._rounds,
        )
        return hosting if specs or has_built_in else None

    async def aclose(self) -> None:
        if self._fleet is not None:
            await self._fleet.close()
