"""Agents in front of a scripted server, and tools for them."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from proxy.agents.model import Model
from proxy.conversation.json import JsonValue
from tests.fakes.scripted_backend import Script, ScriptedBackend
from tests.fakes.sockets import listening
from tests.fakes.sse import calls


def get_weather(city: str) -> str:
    """Tell the weather in a city."""
    return f"It is 21 degrees in {city}."


def report(text: str) -> str:
    """Submit a report."""
    return f"Reported: {text}"


def broken() -> str:
    """Fail always."""
    raise LookupError("nothing there")


WEATHER_CALLED = calls("get_weather", '{"city": "Paris"}')
REPORT_CALLED = calls("report", '{"text": "fine"}')
BROKEN_CALLED = calls("broken", "{}")


@asynccontextmanager
async def scripted(
    *scripts: Script | bytes, window: int | None = None, **settings: dict[str, object]
) -> AsyncGenerator[tuple[Model, ScriptedBackend], None]:
    """Open a model of the client library on a server that sends the replies in `scripts`."""
    backend = ScriptedBackend(*scripts)
    if window is not None:
        slot: dict[str, JsonValue] = {"n_ctx": window}
        backend.properties = {"default_generation_settings": slot, "total_slots": 2}
    given: dict[str, dict[str, object]] = {"backend": {"kind": "llama-server"}, **settings}
    async with listening(backend) as upstream, Model(upstream.url, settings=given) as model:
        yield model, backend
