"""`/` leads to everything there is, and `/docs` lists the routes.

`/docs` is a page that needs no script and nothing from another server.
"""

from html import escape
from importlib.resources import files
from string import Template

from fastapi import APIRouter, FastAPI
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response

from proxy import version

ROOT_PATH = "/"
_DASHBOARD = "  /ui                    the dashboard, for a browser\n"
_POLICY = {"content-security-policy": "default-src 'none'; style-src 'unsafe-inline'"}


def root_router(*, has_dashboard: bool) -> APIRouter:
    """Make `/`: browsers are led to the dashboard, others are told where things are."""
    router = APIRouter()

    @router.get(ROOT_PATH, include_in_schema=False)
    async def show(request: Request) -> Response:
        if has_dashboard and "text/html" in request.headers.get("accept", ""):
            return RedirectResponse("ui", 307, {"cache-control": "no-store"})
        dashboard = _DASHBOARD if has_dashboard else ""
        text = _asset("root.txt").substitute(version=version(), dashboard=dashboard)
        return PlainTextResponse(text)

    return router


def documentation_router(app: FastAPI) -> APIRouter:
    """Make `/docs`, which shows the routes of an application."""
    router = APIRouter()

    @router.get("/docs", include_in_schema=False)
    async def show_routes() -> HTMLResponse:
        rows = "\n".join(
            f"<tr><td>{method.upper()}<td><code>{escape(path)}</code><td>"
            + escape((it.get("description") or it.get("summary") or "").partition("\n")[0])
            for path, operations in sorted(app.openapi()["paths"].items())
            for method, it in operations.items()
        )
        text = _asset("docs.html").substitute(what=escape(app.description), rows=rows)
        return HTMLResponse(text, headers=_POLICY)

    return router


def _asset(name: str) -> Template:
    return Template((files("proxy.api") / "assets" / name).read_text(encoding="utf-8"))
