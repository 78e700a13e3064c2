"""Finds a server that runs already, for an operator who has named nothing to serve."""

import os
from collections.abc import Sequence

from proxy.backends.detection import Found, find_running, likely_urls
from proxy.backends.transport import BackendClient
from proxy.errors import InvalidConfiguration
from proxy.serving.opening import names_nothing
from proxy.settings import Settings

_PATIENCE = 1.5  # seconds for each question to a server on this machine

_HOW = (
    ("--backend-url http://127.0.0.1:8080", "for a server that runs elsewhere"),
    ("--model path/to/model.gguf", "starts a llama-server for the file"),
    ("--ollama qwen3:8b", "for an Ollama that runs elsewhere (OLLAMA_HOST)"),
)


def ways_to_name(command: str) -> str:
    """List how a server is named for a command, one way in each line."""
    ways = [*((f"temper {command} {flags}", what) for flags, what in _HOW)]
    ways.append(("temper demo", "needs neither"))
    width = max(len(way) for way, _ in ways)
    return "".join(f"\n  {way:{width}}   {what}" for way, what in ways)


async def find_backend(
    settings: Settings, urls: Sequence[str], command: str = "serve"
) -> Found | None:
    """Look for a server if there is a need to: at `urls`, or else where servers usually are.

    The first of them counts. Raises `InvalidConfiguration`, with what to do for `command`, where
    nothing is named and nothing is found.
    """
    if not names_nothing(settings):
        return None
    urls = urls or tuple(likely_urls(os.environ.get("OLLAMA_HOST", "")))
    found = await find_running(urls, BackendClient, _PATIENCE)
    if found is None:
        places = ", ".join(urls)
        problem = f"nothing is named, and no server answers at {places}. Do one of these:"
        raise InvalidConfiguration("backend.url", problem + ways_to_name(command))
    return found


def with_backend(settings: Settings, found: Found | None) -> Settings:
    """Return the settings of an operator who names what was found where there is nothing else."""
    if found is None or not names_nothing(settings):
        return settings
    named = {"url": found.url, "kind": found.kind.value}
    return settings.model_copy(update={"backend": settings.backend.model_copy(update=named)})
