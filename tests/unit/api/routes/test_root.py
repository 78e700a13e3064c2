import asyncio

import pytest
from fastapi import FastAPI

from proxy.api.routes.root import root_router, version
from tests.fakes.asgi import HandMadeClient


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
