"""`GET /docs`: every route in a page that needs no script and nothing from another server."""

from html import escape

from fastapi import APIRouter, FastAPI
from starlette.responses import HTMLResponse

_PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Temper: routes</title>
<meta name="viewport" content="width=device-width">
<style>
:root {{ color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif }}
body {{ max-width: 60rem; margin: 2rem auto; padding: 0 1rem }}
td, th {{ padding: .2rem 1rem .2rem 0; text-align: left; vertical-align: top }}
</style>
<h1>Temper</h1>
<p>{what}</p>
<p>The same for programs: <a href="openapi.json">openapi.json</a>.</p>
<table><tr><th>method<th>path<th>what it does
{rows}
</table>
"""
_POLICY = {"content-security-policy": "default-src 'none'; style-src 'unsafe-inline'"}


def documentation_router(app: FastAPI) -> APIRouter:
    """Make the route that shows the routes of an application."""
    router = APIRouter()

    async def show_routes() -> HTMLResponse:
        return HTMLResponse(_page(app), headers=_POLICY)

    router.add_api_route("/docs", show_routes, methods=["GET"], include_in_schema=False)
    return router


def _page(app: FastAPI) -> str:
    rows = (
        f"<tr><td>{method.upper()}<td><code>{escape(path)}</code><td>{escape(_summary(operation))}"
        for path, operations in sorted(app.openapi()["paths"].items())
        for method, operation in operations.items()
    )
    return _PAGE.format(what=escape(app.description), rows="\n".join(rows))


def _summary(operation: dict[str, object]) -> str:
    told = operation.get("description") or operation.get("summary") or ""
    return str(told).partition("\n")[0]
