"""The tool servers of the current settings; nothing else is imported before one is configured.

`apply` is called again after each reload of the settings.
"""

from typing import TYPE_CHECKING

from proxy.settings import Settings

if TYPE_CHECKING:
    from proxy.mcp.confirmations import Confirmations
    from proxy.mcp.fleet import ToolServerFleet
    from proxy.mcp.hosting import ToolHosting


class LazyToolServers:
    """Keeps the configured tool servers running."""

    def __init__(self) -> None:
        self._fleet: ToolServerFleet | None = None
        self._confirmations: Confirmations | None = None

    def apply(self, settings: Settings) -> "ToolHosting | None":
        """Start new servers and stop removed ones; return the tools for requests, None if none.

        It does not wait for them. Raises `InvalidConfiguration` if the MCP SDK is not installed.
        """
        if self._fleet is None and not settings.mcp:
            return None
        from proxy.mcp.hosting import hosting_of, specs_of

        specs = specs_of(settings)
        if self._fleet is None:
            from proxy.mcp.fleet import ToolServerFleet

            self._fleet = ToolServerFleet()
        self._fleet.renew(specs)
        hosting = hosting_of(settings.tools, self._fleet, self._confirmations)
        self._confirmations = hosting.confirmations  # open questions can still be answered
        return hosting if specs else None

    async def aclose(self) -> None:
        if self._fleet is not None:
            await self._fleet.close()
