"""`/`: browsers are led to the dashboard, and everybody else is told where things are."""

from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as version_of

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response

ROOT_PATH = "/"
_SIGNPOST = """Temper {version}: an OpenAI-compatible proxy that makes tool calling reliable.

{dashboard}  /v1/chat/completions   chat, as OpenAI speaks it
  /v1/responses          the same in the Responses language
  /v1/messages           the same in Anthropic's language
  /v1/models             the models that can be asked for
  /metrics               for Prometheus
  /healthz, /readyz      for probes
  /openapi.json          all of it
"""
_DASHBOARD = "  /ui                    the dashboard, for a browser\n"


def root_router(*, has_dashboard: bool) -> APIRouter:
    """Make the route."""
    text = _SIGNPOST.format(version=version(), dashboard=_DASHBOARD if has_dashboard else "")

    async def show(request: Request) -> Response:
        if has_dashboard and "text/html" in request.headers.get("accept", ""):
            return RedirectResponse("ui", 307, {"cache-control": "no-store"})
        return PlainTextResponse(text)

    router = APIRouter()
    router.add_api_route(ROOT_PATH, show, methods=["GET"], include_in_schema=False)
    return router


def version() -> str:
    """Return Temper's own version."""
    try:
        return version_of("temper-proxy")
    except PackageNotFoundError:
        return "(not installed)"
