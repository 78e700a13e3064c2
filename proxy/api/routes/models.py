"""The models for clients, none of which is ever loaded for it: `/v1/models`, and `/props`."""

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse

from proxy.api.fronts import Fronts
from proxy.api.openapi import query_parameters
from proxy.backends.client import BackendModel
from proxy.conversation.json import JsonObject
from proxy.dialects.front import ListedModel, Page
from proxy.serving.services import Services


def models_router(services: Services, fronts: Fronts) -> APIRouter:
    """Make the routes that list models, in the client's language, and `/props`.

    `/props` shows a model as llama-server does, for clients that read the window.
    """
    router = APIRouter(tags=["models"])

    # as llama-server has it, whose other routes below it load and unload
    @router.get("/models", include_in_schema=False)
    @router.get("/v1/models", openapi_extra=query_parameters("limit", "after_id", "before_id"))
    async def list_models(request: Request) -> JSONResponse:
        """List the models that can be asked for."""
        catalogue, asked = fronts.catalogue(request.headers), request.query_params
        limit = asked.get("limit", "")
        wanted = Page(
            int(limit) if limit.isdecimal() else None,
            asked.get("after_id", ""),
            asked.get("before_id", ""),
        )
        listed = [*map(_to_listed_model, await services.models())]
        return JSONResponse(catalogue.models(listed, wanted))

    @router.get("/v1/models/{model_id:path}")
    async def show_model(request: Request) -> JSONResponse:
        """Show one model."""
        catalogue = fronts.catalogue(request.headers)
        model = await services.show(request.path_params["model_id"])
        return JSONResponse(catalogue.model(_to_listed_model(model)))

    @router.get("/props", openapi_extra=query_parameters("model"))
    async def show(request: Request) -> JSONResponse:
        """Tell what is known of a model; where there is only one, it need not be named."""
        service, known = await services.identify(request.query_params.get("model", ""))
        told: JsonObject = {
            "model_alias": service.name or known.model,
            "default_generation_settings": {} if known.window is None else {"n_ctx": known.window},
            "chat_template": known.evidence.template,
            "modalities": {sense: sense in known.senses for sense in ("vision", "audio")},
        }
        slots = service.parallel or known.slots
        return JSONResponse(told if slots is None else {**told, "total_slots": slots})

    return router


def _to_listed_model(model: BackendModel) -> ListedModel:
    window = model.details.get("context_window")
    return ListedModel(model.id, window if isinstance(window, int) else None, model.details)
