import asyncio

import pytest
from fastapi import FastAPI
from starlette.types import ASGIApp

from proxy import version
from proxy.api.app import ServerOptions, create_app
from proxy.api.routes.root import documentation_router, root_router
from tests.fakes.asgi import HandMadeClient
from tests.fakes.backend import ScriptedBackend


def asked(accept: str, *, has_dashboard: bool = True) -> HandMadeClient:
    app = FastAPI()
    app.include_router(root_router(has_dashboard=has_dashboard))
    client = HandMadeClient(headers={"accept": accept})
    asyncio.run(client.call(app))
    return client


def test_a_browser_is_led_to_the_dashboard() -> None:
    client = asked("text/html,application/xhtml+xml,*/*;q=0.8")
    assert (client.status, client.answer_headers["location"]) == (307, "ui")


@pytest.mark.parametrize(("accept", "has_dashboard"), [("*/*", True), ("text/html", False)])
def test_everybody_else_is_told_where_things_are(accept: str, *, has_dashboard: bool) -> None:
    client = asked(accept, has_dashboard=has_dashboard)
    assert client.status == 200
    assert b"/v1/chat/completions" in client.answer
    assert (b"/ui" in client.answer) is has_dashboard
    assert version().encode() in client.answer


def page_of(app: ASGIApp) -> str:
    client = HandMadeClient(path="/docs", headers={"host": "localhost"})
    asyncio.run(client.call(app))
    assert client.status == 200
    return client.answer.decode()


def test_every_route_is_listed_with_what_it_does() -> None:
    page = page_of(create_app(ServerOptions().alone(ScriptedBackend()), ServerOptions()))
    assert "<td>GET<td><code>/v1/models</code><td>List the models that can be asked for." in page
    assert "<td>POST<td><code>/v1/chat/completions</code><td>" in page


def test_the_page_needs_no_script_and_nobody_else() -> None:
    page = page_of(create_app(ServerOptions().alone(ScriptedBackend()), ServerOptions()))
    assert "<script" not in page
    assert "http" not in page.replace("<!doctype html>", "").replace("http-equiv", "")


def test_what_a_route_says_is_text() -> None:
    app = FastAPI(description="<b>bold</b>", docs_url=None)
    app.include_router(documentation_router(app))

    async def route() -> str:
        """Say <script>."""
        return ""

    app.add_api_route("/other", route)
    page = page_of(app)
    assert "&lt;b&gt;bold" in page
    assert "Say &lt;script&gt;." in page
