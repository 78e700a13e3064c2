"""`/healthz`, `/readyz` and `/health`: the process, the way to the backend, and the backend."""

from dataclasses import dataclass

from fastapi import APIRouter
from starlette.responses import JSONResponse

from proxy.backends.client import Backend, Health


def health_router(backend: Backend) -> APIRouter:
    """Make the routes that probes ask."""
    routes = _Probes(backend)
    router = APIRouter(tags=["health"])
    router.add_api_route("/healthz", routes.alive, methods=["GET"])
    router.add_api_route("/readyz", routes.ready, methods=["GET"])
    router.add_api_route("/health", routes.health, methods=["GET"])
    return router


@dataclass(frozen=True, slots=True)
class _Probes:
    """The endpoints."""

    backend: Backend

    async def alive(self) -> JSONResponse:
        """Tell that the process runs; it needs no backend for that."""
        return JSONResponse({"status": "ok"})

    async def ready(self) -> JSONResponse:
        """Tell whether a request would be answered now."""
        health = await self.backend.health()
        status = 200 if health is Health.READY else 503
        return JSONResponse({"status": health.value, "backend": self.backend.name}, status)

    async def health(self) -> JSONResponse:
        """Answer as llama-server does."""
        match await self.backend.health():
            case Health.READY:
                return JSONResponse({"status": "ok"})
            case Health.LOADING:
                return _unavailable("Loading model", "model_loading")
            case Health.UNREACHABLE:
                message = f"The backend {self.backend.name} is unreachable"
                return _unavailable(message, "backend_unavailable")


def _unavailable(message: str, code: str) -> JSONResponse:
    error = {"message": message, "type": "unavailable_error", "param": None, "code": code}
    return JSONResponse({"error": error}, 503, {"retry-after": "5"})
