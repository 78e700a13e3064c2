"""Pages for browsers: `/` is an overview, `/docs` lists the routes, `/ui` is the dashboard.

`/docs` needs no script and no other server. The page of `/ui` contains no data, so it needs no key.
It loads the data from `/ui/api` with an operator's key. Browsers do not cache the data, and pages
of other sites cannot read it. The page loads only files of this package.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from importlib.resources.abc import Traversable
from string import Template
from urllib.parse import urlsplit

import msgspec
from fastapi import APIRouter, Depends, FastAPI
from sse_starlette import EventSourceResponse
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import Receive, Scope, Send

from proxy import version
from proxy.api.errors import dashboard_problem, error_response
from proxy.api.request_reader import BodyLimits, read_body
from proxy.api.watching import Watching
from proxy.errors import ForeignOrigin, InvalidRequest, NotTheOperator
from proxy.observability.board import MOST_ROWS
from proxy.observability.peer_workers import BoardRequest, BoardResponse, SiblingBoards
from proxy.observability.recording import Recording
from proxy.observability.replay import before_after
from proxy.observability.rows import OVER, Row
from proxy.observability.sentences import page_words
from proxy.profiles.profile import Profile

ROOT_PATH = "/"
_LIKE_OLLAMA = "Ollama is running"
_PAGE = "/ui"
_ASSETS = "/ui/assets/"
_PING_SECONDS = 15  # `temper top` gives up after twice this time without a ping
_SMALL_BODY = BodyLimits(size=1024, seconds=10.0)
_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
}
_PLAIN = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
}
_DATA = {**_PLAIN, "cache-control": "no-store"}
# the page shows text that clients and models have written; it must never run as a script
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types lit-html"
)
# `/docs` needs only inline styles. Scripts are forbidden, so a script in a route's name is not run.
_DOCUMENTATION_POLICY = {"content-security-policy": "default-src 'none'; style-src 'unsafe-inline'"}
_DASHBOARD_LINE = "  /ui                    the dashboard, for a browser\n"


class _CallDecision(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a POST to `/ui/api/confirmations/{name}`: whether the call may be executed."""

    allow: bool


@dataclass(frozen=True, slots=True)
class _Asset:
    body: bytes
    media_type: str
    etag: str


def _read_assets(folder: Traversable, prefix: str = "") -> Iterator[tuple[str, _Asset]]:
    """Yield the files of the dashboard with their paths relative to the outermost folder."""
    for file in folder.iterdir():
        kind = file.name.rpartition(".")[2]
        if file.is_dir():
            yield from _read_assets(file, f"{prefix}{file.name}/")
        elif kind in _TYPES:
            yield prefix + file.name, _asset_of(file.read_bytes(), kind)


def _asset_of(body: bytes, kind: str) -> _Asset:
    return _Asset(body, _TYPES[kind], f'"{hashlib.sha256(body).hexdigest()[:20]}"')


_FILES = {
    **dict(_read_assets(files("proxy.api") / "assets" / "ui")),
    "vocabulary.js": _asset_of(page_words().encode(), "js"),
}
UI_PATHS = (_PAGE, *(f"{_ASSETS}{name}" for name in _FILES))


def ui_router(dashboard: "Dashboard") -> APIRouter:
    router = APIRouter(include_in_schema=False)
    router.add_api_route(_PAGE, _send_asset, methods=["GET"])
    router.add_api_route(_ASSETS + "{name:path}", _send_asset, methods=["GET"])
    api = APIRouter(dependencies=[Depends(dashboard.check)])
    api.add_api_route("/state", dashboard.state, methods=["GET"])
    api.add_api_route("/events", dashboard.events, methods=["GET"])
    api.add_api_route("/requests", dashboard.requests, methods=["GET"])
    api.add_api_route("/requests/{name}", dashboard.request, methods=["GET"])
    api.add_api_route("/requests/{name}/exchange", dashboard.exchange, methods=["GET"])
    api.add_api_route("/requests/{name}/cancel", dashboard.cancel, methods=["POST"])
    api.add_api_route("/confirmations/{name}", dashboard.confirm, methods=["POST"])
    router.include_router(api, prefix="/ui/api")
    return router


async def _send_asset(request: Request) -> Response:
    asset = _FILES.get(request.path_params.get("name", "index.html"))
    if asset is None:
        return Response(status_code=404, headers=_DATA)
    # no-cache: the browser asks for the etag each time. Otherwise, after an upgrade of Temper, the
    # browser could combine the new page with cached scripts of the old version.
    headers = {
        **_PLAIN,
        "content-security-policy": _POLICY,
        "cache-control": "no-cache",
        "etag": asset.etag,
    }
    if asset.etag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return Response(asset.body, headers={**headers, "content-type": asset.media_type})


@dataclass(frozen=True, slots=True)
class Dashboard:
    """The endpoints below `/ui/api`.

    The endpoints accept only the keys of `operators`. If the server has no keys, `operators` is
    None, and every client is accepted. `siblings` sends queries to the boards of other workers.
    """

    watching: Watching
    recording: Recording | None = None
    profiles: tuple[Profile, ...] = ()
    operators: frozenset[str] | None = None
    siblings: SiblingBoards | None = None

    async def check(self, request: Request) -> None:
        """Raise `ForeignOrigin` for a page of another origin, `NotTheOperator` for another key."""
        if _is_foreign(request):
            raise ForeignOrigin
        owner = request.scope["state"].get("owner", "")
        if self.operators is not None and owner not in self.operators:
            raise NotTheOperator(owner)

    async def state(self) -> Response:
        await self.watching.look()
        return _document(self.watching.state())

    async def events(self, request: Request) -> Response:
        return _Feed(self.watching, _refusal(request, "too_many_watchers"))

    async def requests(self, request: Request) -> Response:
        limit, before = (request.query_params.get(name, "") for name in ("limit", "before"))
        # the length is checked because `int` raises ValueError for thousands of digits
        most = int(limit) if limit.isdecimal() and len(limit) < len("1000") else MOST_ROWS
        return await self._query_board(request, BoardRequest("older", before, most))

    async def request(self, request: Request) -> Response:
        return await self._query_board(request, BoardRequest("row", request.path_params["name"]))

    async def exchange(self, request: Request) -> Response:
        return await self._query_board(
            request, BoardRequest("exchange", request.path_params["name"])
        )

    async def cancel(self, request: Request) -> Response:
        # `read_body` rejects all content types except JSON. A page of another site could send JSON
        # only after a CORS preflight request, and this is refused.
        await read_body(request.scope, request.receive, _SMALL_BODY)
        if self.watching.about.read_only:
            return _refusal(request, "ui_read_only")
        return await self._query_board(request, BoardRequest("cancel", request.path_params["name"]))

    async def confirm(self, request: Request) -> Response:
        """Record a person's decision on a waiting call; a second decision is refused."""
        body = await read_body(request.scope, request.receive, _SMALL_BODY)
        try:
            answer = msgspec.json.decode(body, type=_CallDecision)
        except msgspec.MsgspecError as error:
            raise InvalidRequest("Expected true or false.", "allow") from error
        if self.watching.about.read_only:
            return _refusal(request, "ui_read_only")
        person = request.scope["state"].get("owner") or "a user without a key"
        address = request.client.host if request.client is not None else "an unknown address"
        tools = self.watching.tools
        name = request.path_params["name"]
        if tools is None or not tools.confirmations.answer(
            name, allow=answer.allow, decided_by=f"{person} from {address}"
        ):
            return _refusal(request, "confirmation_over")
        return _document({"confirmation": name, "allowed": answer.allow})

    def respond(self, query: BoardRequest) -> BoardResponse:
        """Answer a query about this board, from a page or from another worker."""
        board, name = self.watching.board, query.name
        number = board.number_of(name)  # None for a row of another worker, or of an earlier process
        if query.what == "older" and (number is not None or not name):
            return _to_board_response({"requests": board.rows(query.limit, number)})
        if number is None:
            return BoardResponse(problem="before_restart")
        row = board.row(number)
        if row is None:
            return BoardResponse(problem="request_forgotten")
        match query.what:
            case "row":
                return _to_board_response(row)
            case "exchange":
                return self._exchange(number, row)
            case _:
                is_cancelled = board.cancel(number)
                refusal = BoardResponse(problem="request_over")
                return _to_board_response({"cancelled": name}) if is_cancelled else refusal

    def _exchange(self, number: int, row: Row) -> BoardResponse:
        kept = self.recording.kept if self.recording is not None else None
        if kept is None:
            return BoardResponse(problem="recording_off")
        line = kept.line(number)
        if line is None:
            return BoardResponse(problem=kept.reason(number) if row.phase == OVER else "not_over")
        return _to_board_response(before_after(line, self.profiles))

    async def _query_board(self, request: Request, query: BoardRequest) -> Response:
        """Answer a query, or forward it to the worker that has the row."""
        result = None
        if self.siblings is not None and self.watching.board.number_of(query.name) is None:
            result = await self.siblings.send(query)
        if result is None:
            result = self.respond(query)
        if result.problem:
            return _refusal(request, result.problem)
        return Response(result.document, headers=_DATA, media_type="application/json")


class _Feed(Response):
    """The event feed of a page, or the `refusal` if too many pages follow the feed already.

    The limit is checked when the response starts, in the same step that counts the page. If it were
    checked earlier, 200 pages that arrive together would all be accepted (F83).
    """

    def __init__(self, watching: Watching, refusal: Response) -> None:
        super().__init__()
        self._watching = watching
        self._refusal = refusal

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        watching = self._watching
        if watching.is_full:
            await self._refusal(scope, receive, send)
            return
        with watching.count_watcher():
            feed = EventSourceResponse(watching.feed(), headers=_DATA, sep="\n", ping=_PING_SECONDS)
            await feed(scope, receive, send)


def _is_foreign(request: Request) -> bool:
    """Return whether a page of another origin sends the request.

    A page of an origin that may use the API (`server.cors_origins`) is foreign as well. With a
    simple GET request, a browser sends no Origin header; it sends Sec-Fetch-Site instead.
    """
    if request.headers.get("sec-fetch-site") == "cross-site":
        return True
    origin = request.headers.get("origin", "")
    return bool(origin) and urlsplit(origin).netloc.lower() != request.headers.get("host", "")


def _to_board_response(value: object) -> BoardResponse:
    return BoardResponse(msgspec.json.encode(value).decode())


def _document(value: object) -> Response:
    return Response(msgspec.json.encode(value), headers=_DATA, media_type="application/json")


def _refusal(request: Request, code: str) -> Response:
    response = error_response(dashboard_problem(code), request.scope)
    response.headers.update(_DATA)
    return response


def overview_router(app: FastAPI, *, has_dashboard: bool, ollama_port: int = 0) -> APIRouter:
    """Return the routes `/` (it redirects browsers to the dashboard) and `/docs`.

    On the `ollama_port`, if there is one, `/` answers like Ollama.
    """
    router = APIRouter()

    @router.api_route(ROOT_PATH, methods=["GET", "HEAD"], include_in_schema=False)
    async def show(request: Request) -> Response:
        server = request.scope.get("server") or ("", 0)
        if ollama_port and server[1] == ollama_port:  # Ollama's clients expect exactly this text
            return PlainTextResponse(_LIKE_OLLAMA)
        if has_dashboard and "text/html" in request.headers.get("accept", ""):
            return RedirectResponse("ui", 307, {"cache-control": "no-store"})
        dashboard = _DASHBOARD_LINE if has_dashboard else ""
        text = _template("root.txt").substitute(version=version(), dashboard=dashboard)
        return PlainTextResponse(text)

    @router.get("/docs", include_in_schema=False)
    async def show_routes() -> HTMLResponse:
        rows = "\n".join(
            f"<tr><td>{method.upper()}<td><code>{escape(path)}</code><td>"
            + escape(
                (operation.get("description") or operation.get("summary") or "").partition("\n")[0]
            )
            for path, operations in sorted(app.openapi()["paths"].items())
            for method, operation in operations.items()
        )
        text = _template("docs.html").substitute(what=escape(app.description), rows=rows)
        return HTMLResponse(text, headers=_DOCUMENTATION_POLICY)

    return router


def _template(name: str) -> Template:
    return Template((files("proxy.api") / "assets" / name).read_text(encoding="utf-8"))
