"""Assembles the HTTP application: endpoints, limits and error pages (the composition root)."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Literal, TypeAlias

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from proxy import version
from proxy.api.client_connection import Endpoint
from proxy.api.dialects import DialectRoute, Dialects, all_dialects
from proxy.api.documents import DocumentTexts
from proxy.api.edge import HEALTH_PATHS, Access, Edge, Endpoints, OpenPaths
from proxy.api.errors import describe, error_response, not_found, wrong_method
from proxy.api.feed_events import About
from proxy.api.openapi import describe_posts
from proxy.api.request_reader import BodyLimits, RequestReader
from proxy.api.response_keeping import REFERENCES, keep_answers
from proxy.api.routes.chat import Chat, TokenCount
from proxy.api.routes.monitoring import METRICS_PATH, health_router, metrics_router
from proxy.api.routes.passthrough import PASSTHROUGH_PATHS, Relay
from proxy.api.routes.resources import models_router, responses_router
from proxy.api.routes.ui import (
    ROOT_PATH,
    UI_PATHS,
    Dashboard,
    overview_router,
    ui_router,
)
from proxy.api.streaming import StreamTimeouts
from proxy.api.watching import Watching
from proxy.conversation.workflows import Workflow
from proxy.dialects.dialect import Problem
from proxy.errors import TemperError
from proxy.inference.kept_reasoning import ReasoningStore
from proxy.inference.plan import Policy
from proxy.inference.retry_budget import RetryBudget
from proxy.observability.observers import Observers
from proxy.serving.admission import Priority
from proxy.serving.request_preparation import RequestPreparation
from proxy.serving.services import ServiceOptions, Services

if TYPE_CHECKING:
    from proxy.mcp.hosting import ToolHosting

_documents = DocumentTexts()  # the texts of recent PDFs; clients send a PDF with every request
# Ollama's paths for embeddings. The older path, `/api/embeddings`, takes a single text.
_EMBEDDINGS_PATHS = ("/api/embed", "/api/embeddings")
ReasoningMode: TypeAlias = Literal["auto", "on", "off"]
_DESCRIPTION = "An OpenAI-compatible proxy that makes tool calling with local models reliable."


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions(ServiceOptions):
    """Options of the HTTP server and of the models.

    - With `forwards_authorization`, the client's key is sent to the backend. This is possible only
      if the server itself has no keys.
    - Web pages from `origins` may use the server.
    - A backend's slots are divided equally among the `workers` of all `replicas`.
    - With `has_open_metrics`, the metrics need no key.
    - `workflows` are the rules for the order of tool calls, by model name.
    - `priorities` are the highest priorities that a client may request, by the owner of the key.
    - The `ollama_port` is for clients of Ollama; 0 means that there is no such port.
    - The dashboard needs a key of one of the `operators`, but no key if the server has no keys.
    - `reasoning` is the setting `context.reasoning`.
    """

    policy: Policy = field(default_factory=Policy)
    timeouts: StreamTimeouts = field(default_factory=StreamTimeouts)
    access: Access = field(default_factory=Access)
    origins: tuple[str, ...] = ()
    body: BodyLimits = field(default_factory=BodyLimits)
    workers: int = 1
    replicas: int = 1
    forwards_authorization: bool = False
    has_open_metrics: bool = False
    operators: frozenset[str] = frozenset()
    ollama_port: int = 0
    has_read_only_ui: bool = False
    workflows: Mapping[str, Workflow] = field(default_factory=dict)
    priorities: Mapping[str, Priority] = field(default_factory=dict)
    reasoning: ReasoningMode = "auto"

    @property
    def process_count(self) -> int:
        """The number of processes that send requests to the same backends."""
        return self.workers * self.replicas

    @property
    def restores_reasoning(self) -> bool:
        """Whether to restore reasoning that clients do not send back.

        A process stores only the reasoning of its own answers. If another process received the next
        request, it could not insert the reasoning. The prompt would then differ from the previous
        prompt, and the engine could not reuse its cache. Therefore, the default `auto` restores
        reasoning only if there is one process.
        """
        return self.reasoning == "on" or (self.reasoning == "auto" and self.process_count == 1)


def create_app(
    services: Services,
    serving: ServerOptions,
    observers: Observers | None = None,
    dialects: Dialects | None = None,
    *,
    tools: "ToolHosting | None" = None,
    reasoning: ReasoningStore | None = None,
) -> Edge:
    """Create the application; the caller closes the backends, observers and tools.

    `dialects` are by default all dialects. `tools` are the operator's tools. `reasoning` stores the
    reasoning of earlier answers. After a reload of the configuration, the caller passes the same
    store again.
    """
    dialects = dialects or all_dialects()
    app = FastAPI(
        title="Temper",
        description=_DESCRIPTION,
        docs_url=None,  # FastAPI's pages load scripts from a CDN; `/docs` of `ui` needs none
        redoc_url=None,
        redirect_slashes=False,
    )
    observers = observers or Observers()
    preparation = _preparation(services, serving, reasoning or ReasoningStore())
    endpoints, repeatable = _endpoints(preparation, serving, observers, dialects, tools=tools)
    # The edge serves these paths. The router only needs them to refuse other methods with 405.
    app.router.routes += [Route(path, _fail_unrouted, methods=["POST"]) for path in endpoints]
    app.include_router(models_router(services, dialects))
    app.include_router(responses_router(dialects.store))
    app.include_router(health_router(services))
    app.include_router(metrics_router(services, observers, tools))
    public = _add_pages(app, services, serving, observers, tools=tools)
    describe_posts(app, dialects, PASSTHROUGH_PATHS)
    app.router.routes.append(Mount("/api", _lazy_ollama_router(services, serving, endpoints)))
    _add_error_pages(app)
    probes = HEALTH_PATHS + ((METRICS_PATH,) if serving.has_open_metrics else ())
    paths = OpenPaths(probes, public)
    return Edge(
        app,
        endpoints,
        serving.access,
        dialects,
        repeatable=repeatable,
        paths=paths,
        origins=serving.origins,
    )


def _preparation(
    services: Services, serving: ServerOptions, reasoning: ReasoningStore
) -> RequestPreparation:
    return RequestPreparation(
        services,
        serving.policy,
        serving.workflows,
        _priorities(serving),
        reasoning if serving.restores_reasoning else None,
        trusts_engines=serving.reasoning == "on",
    )


def _lazy_ollama_router(
    services: Services, serving: ServerOptions, endpoints: Iterable[str]
) -> ASGIApp:
    """Create the routes below `/api` at the first request, because few clients use them."""

    @cache
    def router() -> ASGIApp:
        from proxy.api.routes.ollama import OllamaRoutes, ollama_router

        operators = serving.operators if serving.access.keys else None
        reader = RequestReader(serving.body, serving.forwards_authorization)
        routes = OllamaRoutes(services, reader, operators)
        return ollama_router(routes, (path for path in endpoints if path.startswith("/api/")))

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        await router()(scope, receive, send)

    return answer


async def _fail_unrouted(request: Request) -> Response:
    # the edge serves POST requests to these paths before they reach the router
    raise AssertionError(request.url)


def _add_pages(
    app: FastAPI,
    services: Services,
    serving: ServerOptions,
    observers: Observers,
    *,
    tools: "ToolHosting | None",
) -> frozenset[str]:
    """Add the pages for browsers; return the paths that contain no data and need no key."""
    has_dashboard, port = observers.board is not None, serving.ollama_port
    app.include_router(overview_router(app, has_dashboard=has_dashboard, ollama_port=port))
    if observers.board is None:
        return frozenset((ROOT_PATH,))
    shared, recording, siblings = observers.shared, observers.recording, observers.siblings
    number = shared.identity.number if shared is not None else 1
    about = About(
        version(),
        serving.workers,
        number,
        read_only=serving.has_read_only_ui,
        keeps_exchanges=recording is not None and recording.kept is not None,
    )
    watching = Watching(observers.board, services, about, tools=tools, shared=shared)
    operators = serving.operators if serving.access.keys else None
    dashboard = Dashboard(watching, recording, serving.profiles, operators, siblings)
    if siblings is not None:
        siblings.respond = dashboard.respond
    app.include_router(ui_router(dashboard))
    return frozenset((ROOT_PATH, *UI_PATHS))


def _priorities(serving: ServerOptions) -> Mapping[str, Priority]:
    """Return the highest priority that the owner of each key may request.

    On a server without keys, a client can claim any name, so no name allows more than NORMAL.
    """
    if serving.access.keys:
        return serving.priorities
    order = [*Priority].index
    limits = serving.priorities.items()
    return {name: max(limit, Priority.NORMAL, key=order) for name, limit in limits}


def _endpoints(
    preparation: RequestPreparation,
    serving: ServerOptions,
    observers: Observers,
    dialects: Dialects,
    *,
    tools: "ToolHosting | None",
) -> tuple[Endpoints, Endpoints]:
    """Return endpoints by path: those for POST, and those for POST with an Idempotency-Key."""
    reader = RequestReader(serving.body, serving.forwards_authorization)
    budget = RetryBudget()  # shared, because all endpoints use the same backends (decision 0015)
    endpoints, repeatable = dict[str, Callable[[], Endpoint]](), dict[str, Callable[[], Endpoint]]()
    timeouts, processes = serving.timeouts, serving.process_count

    def chat(route: DialectRoute) -> Endpoint:
        body_reader = _reader_for(route, reader)
        endpoint = Chat(
            route.dialect, body_reader, preparation, timeouts, budget, processes, observers, tools
        )
        return keep_answers(route, endpoint)

    def count(route: DialectRoute) -> Endpoint:
        return TokenCount(route.dialect, _reader_for(route, reader), preparation, tools)

    for route in dialects:
        # created once for all paths, because an idempotency key is valid at all paths of an API
        create = cache(partial(chat, route))
        endpoints |= dict.fromkeys(route.paths, create)
        repeat = partial(_repeatable, route, create, serving, dialects)
        repeatable |= dict.fromkeys(route.paths, cache(repeat))
        if route.count_path:
            endpoints[route.count_path] = cache(partial(count, route))

    relays = partial(
        Relay,
        reader=reader,
        preparation=preparation,
        timeouts=timeouts,
        process_count=processes,
        observers=observers,
    )
    endpoints |= {path: cache(partial(relays, path)) for path in PASSTHROUGH_PATHS}
    endpoints |= {
        path: cache(partial(_lazy_embeddings, relays(path))) for path in _EMBEDDINGS_PATHS
    }
    return endpoints, repeatable


def _repeatable(
    route: DialectRoute,
    create: Callable[[], Endpoint],
    serving: ServerOptions,
    dialects: Dialects,
) -> Endpoint:
    """Create the endpoint for requests with an Idempotency-Key.

    Its module is imported at the first such request, because most clients send no key.
    """
    from proxy.api.idempotency import Idempotency

    dialect, share = route.dialect, dialects.share
    limits = replace(serving.body, takes_any_type=route.takes_any_type)
    sharing = share(dialect, serving.timeouts.keep_alive) if share is not None else None
    return Idempotency(create(), limits, dialect.is_complete, sharing=sharing)


def _reader_for(route: DialectRoute, reader: RequestReader) -> RequestReader:
    return replace(
        reader,
        body=replace(reader.body, takes_any_type=route.takes_any_type),
        documents=_documents if route.has_documents else None,
        slow_marks=() if route.written_store is None else REFERENCES,
    )


def _lazy_embeddings(relay: Relay) -> Endpoint:
    """Create the endpoint of a path for embeddings in Ollama's API.

    Its module is imported at the first request, because few clients use this API.
    """
    from proxy.api.routes.ollama import Vectors

    reader = replace(relay.reader, body=replace(relay.reader.body, takes_any_type=True))
    return Vectors(
        relay.path, reader, relay.preparation, relay.timeouts, relay.process_count, relay.observers
    )


def _add_error_pages(app: FastAPI) -> None:
    """Write every error in the client's dialect, including the errors of the framework."""

    async def answer(request: Request, error: Exception) -> Response:
        match error:
            case TemperError():
                problem = describe(error)
            case HTTPException():
                problem = _framework_problem(request, error, tuple(sorted(app.openapi()["paths"])))
            case _:  # a bug, which is raised again for the server's log
                problem = describe(TemperError())
        return error_response(problem, request.scope)

    for kind in (TemperError, HTTPException, Exception):
        app.add_exception_handler(kind, answer)


def _framework_problem(request: Request, error: HTTPException, paths: tuple[str, ...]) -> Problem:
    path = request.scope["path"]  # not from `request.url`, which also depends on the Host header
    match error.status_code:
        case HTTPStatus.NOT_FOUND:
            return not_found(path, paths)
        case HTTPStatus.METHOD_NOT_ALLOWED:
            return wrong_method(request.method, path, (error.headers or {}).get("Allow", ""))
        case _:
            return Problem(error.status_code, "invalid_request_error", str(error.detail))
