"""F36 to F38, F83: unusual paths, public addresses without a key, and requests of web pages."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from proxy.api.app import ServerOptions
from proxy.api.edge import Access
from proxy.api.watching import MOST_WATCHERS
from proxy.errors import InvalidConfiguration
from proxy.observability.board import Board
from proxy.observability.observers import Observers
from proxy.settings import load_settings
from tests.fakes.running_proxy import CHAT, temper
from tests.fakes.sse import says
from tests.faults.proxies import before, is_refusal
from tests.faults.requests import chats

PATHS = pytest.mark.fault("F36")
KEYS = pytest.mark.fault("F37")
PAGES = pytest.mark.fault("F38")
FEEDS = pytest.mark.fault("F83")

KEY = "the-key-of-the-server"
LOCKED = ServerOptions(access=Access({"us": KEY}))
LOOPBACK = ServerOptions(access=Access(hosts=frozenset({"127.0.0.1", "localhost"})))
EVIL = "https://evil.example"


@PATHS
@pytest.mark.parametrize(
    "path",
    [
        "//v1/chat/completions",
        "/v1//chat/completions",
        "/v1/chat/completions/",
        "/v1/chat/completions/../../slots",
        "/v1/%2e%2e/slots",
        "/v1/..%2fslots",
        "/slots",
        "/tools",
        "/models/load",
        "/cors-proxy",
        "/%00",
    ],
)
async def test_unknown_route_is_404_and_not_forwarded(*, subject: str, path: str) -> None:
    async with before(subject, says("Hi.")) as proxy:
        url = str(proxy.client.base_url).rstrip("/") + path
        response = await proxy.client.post(url, json=chats())
    assert is_refusal(subject, response.status_code, 404)
    assert proxy.backend.upstream_requests == []


@KEYS
@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "example.com"])
def test_listening_on_a_public_address_without_an_api_key_is_an_error(
    host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEMPER_SERVER__HOST", host)
    with pytest.raises(InvalidConfiguration, match="api_key"):
        load_settings(None, {})


@KEYS
@pytest.mark.parametrize(
    "address", [f"/v1/models?api_key={KEY}", f"/v1/models?key={KEY}", f"/v1/models?token={KEY}"]
)
async def test_an_api_key_in_the_query_string_is_a_401(address: str) -> None:
    async with temper(serving=LOCKED) as proxy:
        assert (await proxy.client.get(address)).status_code == 401


@KEYS
@pytest.mark.parametrize("sent", ["wrong", KEY[:-1], KEY + "x", KEY.upper(), "é"])
async def test_a_part_of_the_api_key_is_not_accepted(sent: str) -> None:
    headers = [(b"authorization", f"Bearer {sent}".encode())]
    async with temper(serving=LOCKED) as proxy:
        refused = await proxy.client.get("/v1/models", headers=headers)
        opened = await proxy.client.get("/v1/models", headers={"authorization": f"Bearer {KEY}"})
    assert (refused.status_code, opened.status_code) == (401, 200)


@PAGES
@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", ""])
async def test_a_request_with_a_foreign_host_header_is_a_403(*, subject: str, host: str) -> None:
    async with before(subject, says("Hi."), serving=LOOPBACK) as proxy:
        response = await proxy.client.post(CHAT, json=chats(), headers={"host": host})
    assert is_refusal(subject, response.status_code, 403)
    assert proxy.backend.upstream_requests == []


@PAGES
@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""]
)
async def test_a_post_without_the_json_content_type_from_a_web_page_is_a_415(
    *, subject: str, kind: str
) -> None:
    async with before(subject, says("Hi.")) as proxy:
        headers = {"content-type": kind, "origin": EVIL}
        body = b'{"model": "m", "messages": [{"role": "user", "content": "Hi."}]}'
        response = await proxy.client.post(CHAT, content=body, headers=headers)
    assert is_refusal(subject, response.status_code, 415)
    assert proxy.backend.upstream_requests == []


@PAGES
async def test_a_request_from_a_foreign_origin_gets_no_cors_headers(subject: str) -> None:
    preflight = {
        "origin": EVIL,
        "access-control-request-method": "POST",
        "access-control-request-headers": "content-type",
    }
    async with before(subject, says("Hi.")) as proxy:
        preflight_response = await proxy.client.options(CHAT, headers=preflight)
        answered = await proxy.client.post(CHAT, json=chats(), headers={"origin": EVIL})
    for response in (preflight_response, answered):
        assert response.headers.get("access-control-allow-origin") not in ("*", EVIL)
        assert "access-control-allow-credentials" not in response.headers


@FEEDS
async def test_simultaneous_event_feeds_of_the_dashboard_are_limited() -> None:
    async with temper(observers=Observers(board=Board())) as proxy, AsyncExitStack() as stack:
        opening = [proxy.client.stream("GET", "/ui/api/events") for _ in range(3 * MOST_WATCHERS)]
        answers = await asyncio.gather(*map(stack.enter_async_context, opening))
        status = [answer.status_code for answer in answers]
        assert status.count(200) == MOST_WATCHERS
        assert status.count(503) == len(status) - MOST_WATCHERS


@FEEDS
@pytest.mark.parametrize("path", ["/ui/api/events", "/ui/api/state", "/ui/api/requests/a-1"])
async def test_a_cross_site_request_for_the_dashboard_is_a_403(path: str) -> None:
    async with temper(observers=Observers(board=Board())) as proxy:
        headers = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}
        response = await proxy.client.get(path, headers=headers)
    assert response.status_code == 403
