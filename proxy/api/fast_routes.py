"""The way past the router for the endpoints that are asked for all the time.

Routing, its error pages and its exit stacks are five layers for each message that is sent; an
endpoint that answers its own errors needs none of them. It must not know what the endpoints do.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

from starlette.types import ASGIApp, Receive, Scope, Send


@dataclass(frozen=True, slots=True)
class FastRoutes:
    """ASGI middleware: takes a POST to one of the `endpoints` there, and all else to `app`."""

    app: ASGIApp
    endpoints: Mapping[str, ASGIApp]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        is_post = scope["type"] == "http" and scope["method"] == "POST"
        endpoint = self.endpoints.get(scope["path"]) if is_post else None
        await (endpoint or self.app)(scope, receive, send)


class LateEndpoint:
    """An ASGI application that is made for the first who asks for it."""

    def __init__(self, make: Callable[[], ASGIApp]) -> None:
        self._make = make

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        await self._endpoint(scope, receive, send)

    @cached_property
    def _endpoint(self) -> ASGIApp:
        return self._make()
