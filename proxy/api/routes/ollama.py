"""Ollama's API apart from chats: models and their management, the version, embeddings.

    GET  /api/tags       {"models": [{"name": "qwen3:latest", "details": {...}}]}
    POST /api/show       {"model": "qwen3"} -> {"capabilities": ["completion", "tools"], ...}
    POST /api/pull       JSON lines of progress, forwarded to an Ollama backend, for operators only
    POST /api/embed      {"model": "e", "input": ["a"]} -> {"embeddings": [[0.1, ...]]}

Ollama's chats are served by `chat`, in the dialect `dialects.ollama_chat.downstream`.
"""

import time
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import ClassVar

from msgspec import structs
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route, Router

from proxy import version
from proxy.api.errors import describe, error_reply
from proxy.api.request_reader import RequestReader, read_body
from proxy.api.routes.passthrough import Relay
from proxy.api.routes.resources import to_listed_model
from proxy.backends.client import PassthroughRequest
from proxy.conversation import json
from proxy.dialects.dialect import ListedModel
from proxy.dialects.ollama_chat.downstream import resources
from proxy.errors import (
    InvalidRequest,
    NotTheOperator,
    TemperError,
    UnknownModel,
)
from proxy.profiles.known_model import KnownModel
from proxy.serving.services import OLLAMA, Service, Services

_OLD = "/api/embeddings"  # this path takes only one text
VERSION = "0.34.0"  # of Ollama's API; some clients require a recent version
_LINES = "application/x-ndjson"
_NO_OLLAMA = (
    "Models can be changed only with an Ollama backend. Download a model with "
    "`temper pull OWNER/NAME:Q4_K_M` and serve it with `temper serve --hf`."
)
_NO_BLOBS = "Temper does not accept files. Send them to Ollama itself, or use `temper pull`."


@dataclass(frozen=True, slots=True)
class OllamaRoutes:
    """The endpoints. Only keys of `operators` may change models; None means that every key may."""

    services: Services
    reader: RequestReader
    operators: frozenset[str] | None = None

    async def tags(self, _: Request) -> Response:
        """List the available models."""
        return JSONResponse(resources.list_models(await self._list_served()))

    async def running(self, request: Request) -> Response:
        """List the models that are loaded."""
        services = [*self.services]
        # Only Ollama itself knows when it will unload a model, so if the only backend is an
        # Ollama, it answers the request. Otherwise, Temper lists the loaded models of all services.
        if len(services) == 1 and (ollama := await self._ollama()) is not None:
            return await self._pass_on(request, ollama, b"{}")
        loaded: list[ListedModel] = []
        for service in self.services:
            if await service.condition() == "loaded":
                loaded += map(to_listed_model, await service.offers())
        return JSONResponse(resources.list_running(loaded, time.time()))

    async def show(self, request: Request) -> Response:
        """Describe one model."""
        body = await self._body(request)
        name = resources.read_name(body)
        if not name:
            raise InvalidRequest("model is required")
        service, known = await self._find(name)
        if known.engine == OLLAMA:
            named = json.join_object({**json.split_object(body), "model": json.dump(name)})
            return await self._pass_on(request, service, named, has_model=True)
        offers = [*map(to_listed_model, await service.offers())]
        model = next((offer for offer in offers if offer.id == known.model), None)
        # llama-server serves its only model under any name, so any name describes that model
        if model is None and len(offers) != 1:
            raise UnknownModel(name, tuple(offer.id for offer in offers))
        model = model or offers[0]
        description = resources.show_model(
            replace(model, window=known.window),
            known.evidence.architecture,
            known.evidence.template,
            known.capabilities,
        )
        return JSONResponse(description)

    async def version(self, _: Request) -> Response:
        """Return the version of Ollama's API."""
        return JSONResponse({"version": VERSION}, headers={"x-temper-version": version()})

    async def manage(self, request: Request) -> Response:
        """Forward a request to pull, push, create, copy or delete a model to an Ollama backend."""
        body = await self._body(request)
        owner = request.scope["state"].get("owner", "")
        if self.operators is not None and owner not in self.operators:
            raise NotTheOperator(owner)
        ollama = await self._ollama()
        if ollama is None:
            raise InvalidRequest(_NO_OLLAMA)
        return await self._pass_on(request, ollama, body)

    async def refuse_blobs(self, _: Request) -> Response:
        """Refuse files of models."""
        raise InvalidRequest(_NO_BLOBS)

    async def _list_served(self) -> list[ListedModel]:
        return [*map(to_listed_model, await self.services.models())]

    async def _find(self, name: str) -> tuple[Service, KnownModel]:
        name = name.removesuffix(":latest")  # Ollama's clients add it to a name without a tag
        service = self.services.find(name)
        return service, await service.look_up(self.services.resolve(name))

    async def _ollama(self) -> Service | None:
        """Return the first service whose backend is an Ollama."""
        for service in self.services:
            if (await service.look_up(service.name)).engine == OLLAMA:
                return service
        return None

    async def _body(self, request: Request) -> bytes:
        # Ollama's documentation calls curl without a content type (decision 0028)
        limits = replace(self.reader.body, takes_any_type=True)
        return await read_body(request.scope, request.receive, limits)

    async def _pass_on(
        self, request: Request, service: Service, body: bytes, *, has_model: bool = False
    ) -> Response:
        """Pass a request and its response through.

        With `has_model`, the request names a model, and the backend may use another name for it.
        """
        scope, name = request.scope, resources.read_name(body)
        forwarded = PassthroughRequest(
            scope["path"],
            "model" if has_model else "",
            name,
            json.split_object(body),
            method=request.method,
        )
        if has_model:
            forwarded = service.address_to_backend(forwarded)
        parts = service.backend.relay(forwarded, self.reader.upstream_headers(scope))
        first = await anext(parts, b"")  # a refusal by Ollama is raised here, with its own status

        async def stream() -> AsyncGenerator[bytes, None]:
            yield first
            try:
                async with aclosing(parts):
                    async for part in parts:
                        yield part
            except TemperError as error:
                yield error_reply(describe(error), scope).body + b"\n"

        # a line break shows that the response is a stream; other responses of Ollama have none
        media_type = _LINES if b"\n" in first else "application/json"
        return StreamingResponse(stream(), media_type=media_type)


def ollama_router(routes: OllamaRoutes, posts: Iterable[str]) -> Router:
    """Create the routes below `/api`; POST requests to `posts` are served elsewhere."""
    names = {
        "tags": (routes.tags, ["GET"]),  # and HEAD, which starlette adds
        "version": (routes.version, ["GET"]),
        "ps": (routes.running, ["GET"]),
        "show": (routes.show, ["POST"]),
        **dict.fromkeys(("pull", "push", "create", "copy"), (routes.manage, ["POST"])),
        "delete": (routes.manage, ["DELETE"]),
        "blobs/{digest}": (routes.refuse_blobs, ["HEAD", "POST"]),
    }
    served_here = [
        Route(f"/{name}", answer, methods=methods) for name, (answer, methods) in names.items()
    ]
    # These routes are never called. Without them, the router would answer other methods of these
    # paths with 404 instead of 405.
    elsewhere = [Route(path.removeprefix("/api"), routes.show, methods=["POST"]) for path in posts]
    return Router([*served_here, *elsewhere], redirect_slashes=False)


@dataclass(frozen=True, slots=True)
class Vectors(Relay):
    """Passes requests for embeddings to Ollama unchanged, to other engines as `/v1/embeddings`."""

    dialect: ClassVar[str] = "ollama"

    def read(self, body: bytes) -> PassthroughRequest:
        name = resources.read_name(body)
        if not name:
            raise InvalidRequest("model is required")
        resources.to_embeddings_request(body)  # raises InvalidRequest
        text_field = "prompt" if self.path == _OLD else "input"
        return PassthroughRequest(self.path, text_field, name, json.split_object(body))

    async def put(self, forwarded: PassthroughRequest, service: Service) -> PassthroughRequest:
        if (await service.look_up(forwarded.model)).engine == OLLAMA:
            return forwarded
        fields = resources.to_embeddings_request(forwarded.body())
        fields["model"] = json.dump(forwarded.model.removesuffix(":latest"))
        return structs.replace(forwarded, path="/v1/embeddings", fields=fields)

    def write(
        self, request: PassthroughRequest, forwarded: PassthroughRequest, body: bytes
    ) -> bytes:
        if forwarded.path == self.path:
            return body
        return resources.write_vectors(body, request.model, is_old=self.path == _OLD)
