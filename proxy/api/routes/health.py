"""`/healthz`: the process runs. `/readyz`: a backend answers. `/health`: the model is loaded."""

from dataclasses import dataclass

from fastapi import APIRouter
from starlette.responses import JSONResponse

from proxy.backends.client import Health
from proxy.conversation.json import JsonObject
from proxy.serving.services import Services, best_of

# a probe's answer, not an error
_NOT_READY: dict[int | str, dict[str, object]] = {
    503: {"description": "Not now", "content": {"application/json": {"schema": {}}}}
}


def health_router(services: Services) -> APIRouter:
    """Make the routes that probes ask."""
    routes = _Probes(services)
    router = APIRouter(tags=["health"])
    router.add_api_route("/healthz", routes.alive, methods=["GET"])
    router.add_api_route("/readyz", routes.ready, methods=["GET"], responses=_NOT_READY)
    router.add_api_route("/health", routes.health, methods=["GET"])
    return router


@dataclass(frozen=True, slots=True)
class _Probes:
    """The endpoints."""

    services: Services

    async def alive(self) -> JSONResponse:
        """Tell that the process runs; it needs no backend for that."""
        return JSONResponse({"status": "ok"})

    async def ready(self) -> JSONResponse:
        """Return whether a request would be answered now, and how each of several servers does."""
        healths = await self.services.healths()
        health = best_of(healths)
        told: JsonObject = {"status": health.value, "backend": self.services.name}
        if len(healths) > 1:
            told["servers"] = {name: state.value for name, state in healths.items()}
        return JSONResponse(told, 200 if health is Health.READY else 503)

    async def health(self) -> JSONResponse:
        """Answer as llama-server does."""
        match await self.services.health():
            case Health.READY:
                return JSONResponse({"status": "ok"})
            case Health.LOADING:
                return _unavailable("Loading model", "model_loading")
            case Health.UNREACHABLE:
                message = f"The backend {self.services.name} is unreachable"
                return _unavailable(message, "backend_unavailable")


def _unavailable(message: str, code: str) -> JSONResponse:
    error = {"message": message, "type": "unavailable_error", "param": None, "code": code}
    return JSONResponse({"error": error}, 503, {"retry-after": "5"})
