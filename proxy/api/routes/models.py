"""`GET /v1/models` and `/v1/models/{id}`: the models, in the client's language."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request

from proxy.api.fronts import Fronts
from proxy.backends.client import BackendModel
from proxy.conversation.json import JsonObject
from proxy.dialects.front import ListedModel, Page
from proxy.serving.services import Services


def models_router(services: Services, fronts: Fronts) -> APIRouter:
    """Make the routes that list models."""
    routes = _Models(services, fronts)
    router = APIRouter(tags=["models"])
    add = router.add_api_route
    add("/v1/models", routes.list_models, methods=["GET"])
    add("/v1/models/{model_id:path}", routes.show_model, methods=["GET"])
    # as llama-server has it, whose other routes below it load and unload
    add("/models", routes.list_models, methods=["GET"], include_in_schema=False)
    return router


@dataclass(frozen=True, slots=True)
class _Models:
    """The endpoints; nothing here ever loads a model."""

    services: Services
    fronts: Fronts

    async def list_models(
        self,
        request: Request,
        limit: Annotated[str, Query()] = "",
        after_id: Annotated[str, Query()] = "",
        before_id: Annotated[str, Query()] = "",
    ) -> JsonObject:
        """List the models that can be asked for."""
        catalogue = self.fronts.catalogue(request.headers)
        wanted = Page(int(limit) if limit.isdecimal() else None, after_id, before_id)
        return catalogue.models([*map(_to_listed_model, await self.services.models())], wanted)

    async def show_model(self, request: Request, model_id: Annotated[str, Path()]) -> JsonObject:
        """Show one model."""
        catalogue = self.fronts.catalogue(request.headers)
        return catalogue.model(_to_listed_model(await self.services.show(model_id)))


def _to_listed_model(model: BackendModel) -> ListedModel:
    window = model.details.get("context_window")
    return ListedModel(model.id, window if isinstance(window, int) else None, model.details)
