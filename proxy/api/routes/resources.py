"""Resources that clients can read: models (without loading them), and stored responses."""

from asyncio import to_thread

from fastapi import APIRouter, Request
from starlette.datastructures import QueryParams
from starlette.responses import JSONResponse, Response

from proxy.api.dialects import Dialects
from proxy.api.errors import error_response, wrong_method
from proxy.api.openapi import query_parameters
from proxy.api.request_reader import client_of
from proxy.backends.client import BackendModel
from proxy.backends.engines import engine_of, window_in
from proxy.conversation.json import JsonObject
from proxy.dialects.dialect import ListedModel, Page, Problem
from proxy.dialects.lenient_json import as_positive
from proxy.dialects.openai_responses import store as responses
from proxy.dialects.openai_responses.models import codex_models
from proxy.dialects.openai_responses.store import ResponseStore
from proxy.serving.services import Services

_CODEX = "client_version"  # a query parameter that only Codex sends


def models_router(services: Services, dialects: Dialects) -> APIRouter:
    """Create `/props`, and the routes that list models in the client's dialect.

    `/props` describes a model in llama-server's format. Some clients read the context window there.
    """
    router = APIRouter(tags=["models"])

    @router.get("/models", include_in_schema=False)  # llama-server also lists models at this path
    @router.get("/v1/models", openapi_extra=query_parameters("limit", "after_id", "before_id"))
    async def list_models(request: Request) -> JSONResponse:
        """List the available models."""
        query = request.query_params
        listed = [*map(to_listed_model, await services.models())]
        listing = dialects.catalogue(request.headers).models(listed, _page_in(query))
        if _CODEX in query:
            listing["models"] = codex_models(listed)
        return JSONResponse(listing)

    @router.get("/v1/models/{model_id:path}")
    async def show_model(request: Request) -> JSONResponse:
        """Describe a model."""
        catalogue = dialects.catalogue(request.headers)
        model = await services.show(request.path_params["model_id"])
        return JSONResponse(catalogue.model(to_listed_model(model)))

    @router.get("/props", openapi_extra=query_parameters("model"))
    async def show(request: Request) -> JSONResponse:
        """Return the properties of a model; a single model need not be named."""
        service, known = await services.identify(request.query_params.get("model", ""))
        properties: JsonObject = {
            "model_alias": service.name or known.model,
            "default_generation_settings": {} if known.window is None else {"n_ctx": known.window},
            "chat_template": known.evidence.template,
            "modalities": {sense: sense in known.senses for sense in ("vision", "audio")},
        }
        slots = service.parallel or known.slots
        return JSONResponse(properties if slots is None else {**properties, "total_slots": slots})

    return router


def _page_in(query: QueryParams) -> Page:
    limit = query.get("limit", "")
    # Only nine digits are used, because `int` raises ValueError for thousands of digits. A page has
    # at most 1,000 models.
    most = int(limit[:9]) if limit.isdecimal() else None
    return Page(most, query.get("after_id", ""), query.get("before_id", ""))


def to_listed_model(model: BackendModel) -> ListedModel:
    details = dict(model.details)
    window = as_positive(details.get("context_window")) or window_in(engine_of([details]), details)
    return ListedModel(model.id, window, details)


_RESPONSE = "/v1/responses/{response_id}"
_UPGRADE = Problem(
    426,
    "invalid_request_error",
    "Responses are streamed over HTTP here: send POST with `stream: true`.",
    "upgrade_required",
    headers={"upgrade": "HTTP/1.1"},
)


def responses_router(store: ResponseStore | None) -> APIRouter:
    """Return the routes; without a `store`, no response exists.

    A response is visible only to the owner of the key that created it.
    """
    router = APIRouter(tags=["responses"])

    @router.get("/v1/responses", include_in_schema=False)
    async def probe(request: Request) -> Response:
        """Refuse a WebSocket with a status after which clients continue with HTTP."""
        wants_socket = request.headers.get("upgrade", "").lower() == "websocket"
        problem = _UPGRADE if wants_socket else wrong_method("GET", "/v1/responses", "POST")
        return error_response(problem, request.scope)

    @router.post("/v1/responses/compact", include_in_schema=False)
    @router.post("/v1/conversations", include_in_schema=False)
    async def refuse(request: Request) -> Response:
        """Return an error that names the supported alternative of an endpoint."""
        return error_response(responses.not_offered(request.scope["path"]), request.scope)

    @router.get(_RESPONSE)
    async def show(request: Request) -> Response:
        """Show a stored response."""
        return await _answer(request, store, responses.retrieve)

    @router.delete(_RESPONSE)
    async def delete(request: Request) -> Response:
        """Delete a stored response."""
        return await _answer(request, store, responses.delete)

    @router.get(f"{_RESPONSE}/input_items")
    async def list_inputs(request: Request) -> Response:
        """List the input items of a response, and the items of all responses before it."""
        return await _answer(request, store, responses.list_inputs)

    @router.post(f"{_RESPONSE}/cancel")
    async def cancel(request: Request) -> Response:
        """Refuse: only background responses can be canceled, and Temper has no such responses."""
        return error_response(responses.cancel(request.path_params["response_id"]), request.scope)

    return router


async def _answer(
    request: Request, store: ResponseStore | None, answer: responses.LookUp
) -> Response:
    owner, name = client_of(request.scope).owner, request.path_params["response_id"]
    # a thread, because the store may be a file or another machine
    body = await to_thread(answer, store, owner, name, request.query_params)
    if isinstance(body, Problem):
        return error_response(body, request.scope)
    return Response(body, 200, media_type="application/json")
