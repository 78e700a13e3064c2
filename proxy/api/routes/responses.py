"""The routes around `POST /v1/responses`: kept responses, and refusals of missing features.

The dialect makes the answers, in a thread because a store may be a file. This module has the paths
and checks the owner.
"""

from asyncio import to_thread
from collections.abc import Callable
from typing import Concatenate, ParamSpec

from fastapi import APIRouter, Request
from starlette.responses import Response

from proxy.api.errors import error_response, wrong_method
from proxy.api.request_reader import sender_of
from proxy.dialects.front import Problem
from proxy.dialects.openai_responses import retrieval
from proxy.dialects.openai_responses.store import ResponseStore

_ONE = "/v1/responses/{response_id}"
_UPGRADE = Problem(
    426,
    "invalid_request_error",
    "Responses are streamed over HTTP here: send POST with `stream: true`.",
    "upgrade_required",
    headers={"upgrade": "HTTP/1.1"},
)

P = ParamSpec("P")


def responses_router(store: ResponseStore | None) -> APIRouter:
    """Make the routes; without a store nothing is found. A response belongs to its owner's key."""
    router = APIRouter(tags=["responses"])

    @router.get("/v1/responses", include_in_schema=False)
    async def probe(request: Request) -> Response:
        """Refuse a web socket with a status that makes the client stay with HTTP."""
        wants_socket = request.headers.get("upgrade", "").lower() == "websocket"
        problem = _UPGRADE if wants_socket else wrong_method("GET", "/v1/responses", "POST")
        return error_response(problem, request.scope)

    @router.post("/v1/responses/compact", include_in_schema=False)
    @router.post("/v1/conversations", include_in_schema=False)
    async def refuse(request: Request) -> Response:
        """Say what to use instead of what is not offered."""
        return error_response(retrieval.not_offered(request.scope["path"]), request.scope)

    @router.get(_ONE)
    async def show(request: Request) -> Response:
        """Show a response that was kept."""
        return await _answer(request, store, retrieval.retrieve, request.query_params)

    @router.delete(_ONE)
    async def delete(request: Request) -> Response:
        """Forget a response."""
        return await _answer(request, store, retrieval.delete)

    @router.get(f"{_ONE}/input_items")
    async def list_inputs(request: Request) -> Response:
        """List the items that a response was made from, with those of all before it."""
        return await _answer(request, store, retrieval.list_inputs, request.query_params)

    @router.post(f"{_ONE}/cancel")
    async def cancel(request: Request) -> Response:
        """Refuse: only background responses can be cancelled, and there are none."""
        return error_response(retrieval.cancel(request.path_params["response_id"]), request.scope)

    return router


async def _answer(
    request: Request,
    store: ResponseStore | None,
    find: Callable[Concatenate[ResponseStore | None, str, str, P], bytes | Problem],
    *args: P.args,
    **kwargs: P.kwargs,
) -> Response:
    owner, name = sender_of(request.scope).owner, request.path_params["response_id"]
    found = await to_thread(find, store, owner, name, *args, **kwargs)
    if isinstance(found, Problem):
        return error_response(found, request.scope)
    return Response(found, 200, media_type="application/json")
