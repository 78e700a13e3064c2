"""The tool servers of the settings in use; nothing of them is imported before there is one.

The settings may be read again: `under` is called with whatever they are then.
"""

from typing import TYPE_CHECKING

from proxy.settings import Settings

if TYPE_CHECKING:
    from proxy.mcp.confirmations import Confirmations
    from proxy.mcp.fleet import ToolServerFleet
    from proxy.serving.tool_hosting import ToolHosting


class LateTools:
    """Keeps the tool servers going that the settings name."""

    def __init__(self) -> None:
        self._fleet: ToolServerFleet | None = None
        self._confirmations: Confirmations | None = None

    def under(self, settings: Settings) -> "ToolHosting | None":
        """Start what is new, end what is gone, and return what requests get; None is nothing.

        It holds nobody up. Raises `InvalidConfiguration` where servers cannot be spoken to.
        """
        if self._fleet is None and not settings.mcp:
            return None
        from proxy.serving.tool_hosting import hosting_of, specs_of

        specs = specs_of(settings)
        if self._fleet is None:
            from proxy.mcp.fleet import ToolServerFleet

            self._fleet = ToolServerFleet()
        self._fleet.renew(specs)
        hosting = hosting_of(settings.tools, self._fleet, self._confirmations)
        self._confirmations = hosting.confirmations  # who waits for a person goes on waiting
        return hosting if specs else None

    async def aclose(self) -> None:
        if self._fleet is not None:
            await self._fleet.close()


def examine_tools(settings: Settings) -> None:
    """Find out whether tool servers could be spoken to; raises `InvalidConfiguration`."""
    if settings.mcp:
        from proxy.serving.tool_hosting import specs_of

        specs_of(settings)
