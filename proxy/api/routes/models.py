"""`GET /v1/models` and `/v1/models/{id}`: what can be asked for, in OpenAI's shape."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Path

from proxy.backends.client import Model
from proxy.conversation.json import JsonObject
from proxy.serving.services import Services


def models_router(services: Services) -> APIRouter:
    """Make the routes that list models."""
    routes = _Models(services)
    router = APIRouter(tags=["models"])
    router.add_api_route("/v1/models", routes.list_models, methods=["GET"])
    router.add_api_route("/v1/models/{model_id:path}", routes.show_model, methods=["GET"])
    return router


@dataclass(frozen=True, slots=True)
class _Models:
    """The endpoints; nothing here ever loads a model."""

    services: Services

    async def list_models(self) -> JsonObject:
        """List the models that can be asked for."""
        return {
            "object": "list",
            "data": [_entry(model) for model in await self.services.models()],
        }

    async def show_model(self, model_id: Annotated[str, Path()]) -> JsonObject:
        """Show one model."""
        return _entry(await self.services.show(model_id))


def _entry(model: Model) -> JsonObject:
    entry: JsonObject = {"created": 0, "owned_by": "temper", **model.details}
    return {**entry, "id": model.id, "object": "model"}
