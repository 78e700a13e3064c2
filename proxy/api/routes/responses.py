"""The routes around `POST /v1/responses`: kept responses, and refusals of missing features.

The dialect makes the answers, in a thread because a store may be a file. This module has the paths
and checks the owner.
"""

from asyncio import to_thread
from dataclasses import dataclass

from fastapi import APIRouter, Request
from starlette.responses import Response

from proxy.api.errors import error_response
from proxy.api.request_reader import sender_of
from proxy.dialects.front import Problem
from proxy.dialects.openai_responses import retrieval
from proxy.dialects.openai_responses.store import ResponseStore

_ONE = "/v1/responses/{response_id}"
_NOT_OFFERED = ("/v1/responses/compact", "/v1/conversations")
_UPGRADE = Problem(
    426,
    "invalid_request_error",
    "Responses are streamed over HTTP here: send POST with `stream: true`.",
    "upgrade_required",
    headers={"upgrade": "HTTP/1.1"},
)
_POST_ONLY = Problem(
    405,
    "invalid_request_error",
    "/v1/responses does not take GET. Use POST.",
    "method_not_allowed",
    headers={"allow": "POST"},
)


def responses_router(store: ResponseStore | None) -> APIRouter:
    """Make the routes; without a store nothing is found."""
    routes = _ResponsesRoutes(store)
    router = APIRouter(tags=["responses"])
    router.add_api_route("/v1/responses", routes.probe, methods=["GET"], include_in_schema=False)
    for path in _NOT_OFFERED:
        router.add_api_route(path, routes.refuse, methods=["POST"], include_in_schema=False)
    router.add_api_route(_ONE, routes.show, methods=["GET"])
    router.add_api_route(_ONE, routes.delete, methods=["DELETE"])
    router.add_api_route(f"{_ONE}/input_items", routes.list_inputs, methods=["GET"])
    router.add_api_route(f"{_ONE}/cancel", routes.cancel, methods=["POST"])
    return router


@dataclass(frozen=True, slots=True)
class _ResponsesRoutes:
    """The endpoints; a response belongs to the key that asked for it."""

    store: ResponseStore | None

    async def show(self, request: Request, response_id: str) -> Response:
        """Show a response that was kept."""
        owner = sender_of(request.scope).owner
        query = request.query_params
        found = await to_thread(retrieval.retrieve, self.store, owner, response_id, query)
        return _answer(found, request)

    async def delete(self, request: Request, response_id: str) -> Response:
        """Forget a response."""
        owner = sender_of(request.scope).owner
        found = await to_thread(retrieval.delete, self.store, owner, response_id)
        return _answer(found, request)

    async def list_inputs(self, request: Request, response_id: str) -> Response:
        """List the items that a response was made from, with those of all before it."""
        owner = sender_of(request.scope).owner
        query = request.query_params
        found = await to_thread(retrieval.list_inputs, self.store, owner, response_id, query)
        return _answer(found, request)

    async def cancel(self, request: Request, response_id: str) -> Response:
        """Refuse: only background responses can be cancelled, and there are none."""
        return _answer(retrieval.cancel(response_id), request)

    async def refuse(self, request: Request) -> Response:
        """Say what to use instead of what is not offered."""
        return _answer(retrieval.not_offered(request.scope["path"]), request)

    async def probe(self, request: Request) -> Response:
        """Refuse a web socket with a status that makes the client stay with HTTP."""
        wants_socket = request.headers.get("upgrade", "").lower() == "websocket"
        return _answer(_UPGRADE if wants_socket else _POST_ONLY, request)


def _answer(found: bytes | Problem, request: Request) -> Response:
    if isinstance(found, Problem):
        return error_response(found, request.scope)
    return Response(found, 200, media_type="application/json")
