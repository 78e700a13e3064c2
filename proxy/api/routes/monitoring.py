"""The routes of probes and of Prometheus.

    /healthz    200 while the process runs
    /readyz     200 if a backend would answer a request now, else 503
    /health     like llama-server's: 200, or 503 with `"Loading model"`, so that clients wait
    /metrics    the exposition formats of Prometheus and OpenMetrics

These routes need no guardrails, so they are ordinary routes of FastAPI.
"""

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from proxy.backends.client import Health, best_health
from proxy.conversation.json import JsonObject
from proxy.observability.observers import Observers
from proxy.processes.managed import ManagedBackend
from proxy.serving.services import Service, Services

if TYPE_CHECKING:
    from proxy.mcp.hosting import ToolHosting

METRICS_PATH = "/metrics"
_PATIENCE = 2.0  # seconds to wait for a backend; Prometheus waits ten seconds for the metrics

_EXPOSITION: dict[int | str, dict[str, object]] = {
    200: {"content": {"text/plain": {}, "application/openmetrics-text": {}}}
}
# Declared for the OpenAPI document, which would otherwise show a dialect's error here. Probes never
# get such an error.
_NOT_READY: dict[int | str, dict[str, object]] = {
    503: {"description": "No backend is ready", "content": {"application/json": {"schema": {}}}}
}


def health_router(services: Services) -> APIRouter:
    """Create the routes for probes."""
    router = APIRouter(tags=["health"])

    @router.get("/healthz")
    async def alive() -> JSONResponse:
        """Return 200 while the process runs, with or without a backend."""
        return JSONResponse({"status": "ok"})

    @router.get("/readyz", responses=_NOT_READY)
    async def ready() -> JSONResponse:
        """Return whether a request would be answered now, and the health of each server."""
        healths = await services.healths()
        health = best_health(healths.values())
        state: JsonObject = {"status": health.value, "backend": services.name}
        if len(healths) > 1:
            state["servers"] = {name: server.value for name, server in healths.items()}
        return JSONResponse(state, 200 if health is Health.READY else 503)

    @router.get("/health")
    async def health() -> JSONResponse:
        """Answer as llama-server does."""
        match await services.health():
            case Health.READY:
                return JSONResponse({"status": "ok"})
            case Health.LOADING:
                return _unavailable("Loading model", "model_loading")
            case Health.UNREACHABLE:
                message = f"The backend {services.name} is unreachable"
                return _unavailable(message, "backend_unavailable")

    return router


def metrics_router(
    services: Services, observers: Observers, tools: "ToolHosting | None" = None
) -> APIRouter:
    """Create the route for Prometheus and inference gateways, if requests are counted."""
    router = APIRouter(tags=["metrics"])
    if (meter := observers.meter) is None:
        return router
    meter.follow(service.title for service in services)

    async def probe(service: Service) -> None:
        healths: dict[str, Health] = {}
        # without a timeout, a backend that does not respond would delay all other metrics
        with suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE):
                healths = await service.healths()
        are_up = {name: state is Health.READY for name, state in healths.items()}
        restarts = service.backend.restarts if isinstance(service.backend, ManagedBackend) else 0
        meter.report_backend(service.title, are_up, restarts=restarts)

    @router.get(METRICS_PATH, response_class=Response, responses=_EXPOSITION)
    async def read(request: Request) -> Response:
        """Return the metrics of all workers."""
        await asyncio.gather(*map(probe, services))
        source = tools.offer.source if tools is not None else None
        servers = {name: source.is_ready(name) for name in source.names} if source else {}
        meter.report_tool_servers(servers)
        body, content_type = meter.exposition(request.headers.get("accept", ""))
        return Response(body, headers={"content-type": content_type})

    return router


def _unavailable(message: str, code: str) -> JSONResponse:
    error = {"message": message, "type": "unavailable_error", "param": None, "code": code}
    return JSONResponse({"error": error}, 503, {"retry-after": "5"})
