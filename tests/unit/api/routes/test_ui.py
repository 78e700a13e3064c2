"""The dashboard page and its files; its requests are tested over HTTP in tests/integration."""

import asyncio
import hashlib
import re
import tomllib
from pathlib import Path

import pytest
from fastapi import FastAPI
from starlette.types import ASGIApp

import proxy.api
from proxy import version
from proxy.api.app import ServerOptions, create_app
from proxy.api.feed_events import About
from proxy.api.routes.ui import UI_PATHS, Dashboard, overview_router, ui_router
from proxy.api.watching import Watching
from proxy.observability.board import Board
from proxy.serving.services import Services
from tests.fakes.asgi import HandMadeClient
from tests.fakes.backend import ScriptedBackend

FOLDER = Path(proxy.api.__path__[0]) / "assets" / "ui"
OWN = [*FOLDER.glob("*.*")]
VENDORED = tomllib.loads((FOLDER / "vendor" / "vendored.toml").read_text(encoding="utf-8"))
HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-cache",
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types lit-html"
    ),
}


def page_request(path: str, **headers: str) -> HandMadeClient:
    app = FastAPI()
    app.include_router(ui_router(Dashboard(Watching(Board(), Services([]), About("1")))))
    client = HandMadeClient(path=path, headers={n.replace("_", "-"): v for n, v in headers.items()})
    asyncio.run(client.call(app))
    return client


@pytest.mark.parametrize("path", UI_PATHS)
def test_each_file_of_the_dashboard_has_the_security_headers_and_an_etag(path: str) -> None:
    client = page_request(path)
    assert client.status == 200
    assert client.answer_headers.items() >= HEADERS.items()
    cached = page_request(path, if_none_match=client.answer_headers["etag"])
    assert (cached.status, cached.answer) == (304, b"")
    assert cached.answer_headers.items() >= HEADERS.items()


def test_other_paths_below_ui_assets_get_404() -> None:
    for name in ("vendor/vendored.toml", "../ui/index.html", "none.js", "%2e%2e/app.py"):
        assert page_request(f"/ui/assets/{name}").status == 404


def test_vendored_files_are_unmodified_and_name_their_license() -> None:
    listed = {
        name: sum_ for library in VENDORED.values() for name, sum_ in library["files"].items()
    }
    files = {path for path in (FOLDER / "vendor").rglob("*") if path.is_file()}
    files = {path for path in files if path.name != "vendored.toml"}
    assert {path.relative_to(FOLDER / "vendor").as_posix() for path in files} == listed.keys()
    for path in files:
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        assert digest == listed[path.relative_to(FOLDER / "vendor").as_posix()], path
    for name, library in VENDORED.items():
        assert library["license"] in {"MIT", "BSD-3-Clause"}
        assert f"{name}/LICENSE" in library["files"]
        assert re.fullmatch(r"\d+\.\d+\.\d+", library["version"])


@pytest.mark.parametrize("path", OWN, ids=[path.name for path in OWN])
def test_no_file_of_the_dashboard_renders_markup_or_loads_external_resources(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert not re.search(r"unsafeHTML|innerHTML|outerHTML|insertAdjacent|document\.write", text)
    assert not re.search(r"\beval\(|new Function|style=\$|localStorage|cookie", text)
    assert not re.search(r"(src|href|from|import)\W{1,3}(https?:)?//", text)
    assert len(text.splitlines()) <= 400


def test_every_file_that_the_dashboard_imports_exists() -> None:
    for path in OWN:
        for name in re.findall(r'from "(\.[^"]+)"', path.read_text(encoding="utf-8")):
            made_here = f"/ui/assets/{name.removeprefix('./')}" in UI_PATHS
            assert (path.parent / name).is_file() or made_here, f"{path.name}: {name}"
    page = (FOLDER / "index.html").read_text(encoding="utf-8")
    assert {f"/{name}" for name in re.findall(r'"(ui/assets/[^"]+)"', page)} <= {*UI_PATHS}


def root_for(accept: str, *, has_dashboard: bool = True) -> HandMadeClient:
    app = FastAPI()
    app.include_router(overview_router(app, has_dashboard=has_dashboard))
    client = HandMadeClient(headers={"accept": accept})
    asyncio.run(client.call(app))
    return client


def test_a_browser_is_redirected_to_the_dashboard() -> None:
    client = root_for("text/html,application/xhtml+xml,*/*;q=0.8")
    assert (client.status, client.answer_headers["location"]) == (307, "ui")


@pytest.mark.parametrize(("accept", "has_dashboard"), [("*/*", True), ("text/html", False)])
def test_a_client_without_html_or_a_server_without_dashboard_gets_the_list_of_routes(
    accept: str, *, has_dashboard: bool
) -> None:
    client = root_for(accept, has_dashboard=has_dashboard)
    assert client.status == 200
    assert b"/v1/chat/completions" in client.answer
    assert (b"/ui" in client.answer) is has_dashboard
    assert version().encode() in client.answer


def page_of(app: ASGIApp) -> str:
    client = HandMadeClient(path="/docs", headers={"host": "localhost"})
    asyncio.run(client.call(app))
    assert client.status == 200
    return client.answer.decode()


def test_the_docs_page_lists_routes_with_their_purpose() -> None:
    page = page_of(create_app(ServerOptions().services_for(ScriptedBackend()), ServerOptions()))
    assert "<td>GET<td><code>/v1/models</code><td>List the available models." in page
    assert "<td>POST<td><code>/v1/chat/completions</code><td>" in page


def test_the_docs_page_contains_no_script_and_no_external_resource() -> None:
    page = page_of(create_app(ServerOptions().services_for(ScriptedBackend()), ServerOptions()))
    assert "<script" not in page
    assert "http" not in page.replace("<!doctype html>", "").replace("http-equiv", "")


def test_the_docs_page_escapes_the_descriptions_of_the_app_and_its_routes() -> None:
    app = FastAPI(description="<b>bold</b>", docs_url=None)
    app.include_router(overview_router(app, has_dashboard=False))

    async def route() -> str:
        """Return <script>."""
        return ""

    app.add_api_route("/other", route)
    page = page_of(app)
    assert "&lt;b&gt;bold" in page
    assert "Return &lt;script&gt;." in page
