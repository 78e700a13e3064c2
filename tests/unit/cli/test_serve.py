"""The printed lines about the address and the backend while the backend becomes ready."""

import io
import logging
from collections.abc import Iterator

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from proxy.api.server import PublicAddress
from proxy.cli.safe_console import SafeConsole
from proxy.cli.serve import follow_backend, next_steps
from proxy.cli.terminal import Terminal
from proxy.settings import Settings
from tests.fakes.sockets import listening


@pytest.fixture(autouse=True)
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.cli.serve._CHECK_SECONDS", 0.0)


def create_temper(states: Iterator[str]) -> Starlette:
    """Return a Temper whose `/readyz` reports the next state at each request."""

    async def readiness(_request: Request) -> JSONResponse:
        return JSONResponse({"status": next(states)})

    return Starlette(routes=[Route("/readyz", readiness)])


async def follow_states(*states: str, is_terminal: bool = True) -> tuple[str, str]:
    """Follow a backend through `states`; return the printed lines, and the URL of Temper."""
    output = io.StringIO()
    terminal = Terminal(SafeConsole(file=output, width=200)) if is_terminal else None
    async with listening(create_temper(iter(states))) as server:
        await follow_backend(PublicAddress(server.url, "http://engine"), terminal)
    return output.getvalue(), server.url


async def test_one_line_with_the_address_is_printed_for_a_ready_backend(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("proxy.cli.serve._CHECK_SECONDS", 60.0)
    output, url = await follow_states("ready")
    assert output == f"ready at {url}/v1 (http://engine)\n"


async def test_each_state_of_a_backend_is_reported_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO, "proxy.cli.serve"):
        states = ("unreachable", "unreachable", "loading", "loading", "ready")
        output, url = await follow_states(*states)
    assert output == f"listening at {url}/v1\nready at {url}/v1 (http://engine)\n"
    assert sum("not reachable yet" in message for message in caplog.messages) == 1
    assert sum("is loading its model" in message for message in caplog.messages) == 1


async def test_without_a_terminal_an_unreachable_backend_is_reported_in_one_log_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    output, _ = await follow_states("unreachable", is_terminal=False)
    assert output == ""
    assert sum("not reachable yet" in message for message in caplog.messages) == 1


async def test_follow_backend_ends_if_temper_is_unreachable() -> None:
    terminal = Terminal(SafeConsole(file=io.StringIO()))
    await follow_backend(PublicAddress("http://127.0.0.1:9", "http://engine"), terminal)


@pytest.mark.parametrize(
    ("server", "steps"),
    [
        ({}, ("Try it in another terminal: temper chat, or: temper launch claude-code",)),
        ({"port": 0}, ("Try it in another terminal: temper chat --backend-url http://h:1",)),
        ({"api_key": "sesame"}, ()),
    ],
)
def test_the_suggested_commands_match_the_port_and_the_key(
    server: dict[str, object], steps: tuple[str, ...]
) -> None:
    assert next_steps(Settings.model_validate({"server": server}), "http://h:1") == steps
