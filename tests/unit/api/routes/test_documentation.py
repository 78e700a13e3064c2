import asyncio

from fastapi import FastAPI
from starlette.types import ASGIApp

from proxy.api.app import ServerOptions, create_app
from proxy.api.routes.documentation import documentation_router
from tests.fakes.asgi import HandMadeClient
from tests.fakes.backend import ScriptedBackend


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
