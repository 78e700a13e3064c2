"""`GET /metrics`: all counters, and whether the backends would answer now."""

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from proxy.backends.client import Health
from proxy.observability.observers import Meter
from proxy.processes.managed import Managed
from proxy.serving.services import Service, Services

if TYPE_CHECKING:
    from proxy.serving.tool_hosting import ToolHosting

METRICS_PATH = "/metrics"
_PATIENCE = 2.0  # seconds for a backend's answer; Prometheus waits for ten

_EXPOSITION: dict[int | str, dict[str, object]] = {
    200: {"content": {"text/plain": {}, "application/openmetrics-text": {}}}
}


def metrics_router(
    services: Services, meter: Meter, tools: "ToolHosting | None" = None
) -> APIRouter:
    """Make the route that Prometheus and inference gateways ask."""
    meter.follow(service.title for service in services)
    router = APIRouter(tags=["metrics"])
    read = _MetricsRoute(services, meter, tools).read
    router.add_api_route(
        METRICS_PATH, read, methods=["GET"], response_class=Response, responses=_EXPOSITION
    )
    return router


@dataclass(frozen=True, slots=True)
class _MetricsRoute:
    """The endpoint."""

    services: Services
    meter: Meter
    tools: "ToolHosting | None" = None

    async def read(self, request: Request) -> Response:
        """Return the metrics of all workers."""
        await asyncio.gather(*map(self._look_at, self.services))
        self.meter.report_tool_servers(self._tool_servers())
        body, content_type = self.meter.exposition(request.headers.get("accept", ""))
        return Response(body, headers={"content-type": content_type})

    def _tool_servers(self) -> dict[str, bool]:
        if self.tools is None:
            return {}
        source = self.tools.source
        return {name: source.is_ready(name) for name in source.names}

    async def _look_at(self, service: Service) -> None:
        felt = Health.UNREACHABLE
        try:
            async with asyncio.timeout(_PATIENCE):
                felt = await service.backend.health()
        except TimeoutError:
            pass
        restarts = service.backend.restarts if isinstance(service.backend, Managed) else 0
        self.meter.report_backend(service.title, is_up=felt is Health.READY, restarts=restarts)
