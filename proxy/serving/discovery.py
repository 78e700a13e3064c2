"""Finds a server that runs already, for an operator who has named nothing to serve."""

import os
from collections.abc import Sequence

from proxy.backends.detection import Found, find_running, likely_urls
from proxy.backends.transport import BackendClient
from proxy.errors import InvalidConfiguration
from proxy.serving.opening import names_nothing
from proxy.settings import Settings

_PATIENCE = 1.5  # seconds for each question to a server on this machine

_COMMANDS = """
  temper serve --backend-url http://127.0.0.1:8080   for a server that runs elsewhere
  temper serve --model path/to/model.gguf            starts a llama-server for the file
  temper serve --ollama qwen3:8b                     for an Ollama that runs elsewhere (OLLAMA_HOST)
  temper demo                                        needs neither"""


async def find_backend(settings: Settings, urls: Sequence[str]) -> Found | None:
    """Look for a server if there is a need to: at `urls`, or else where servers usually are.

    The first of them counts.
    Raises `InvalidConfiguration`, with what to do, where nothing is named and nothing is found.
    """
    if not names_nothing(settings):
        return None
    urls = urls or tuple(likely_urls(os.environ.get("OLLAMA_HOST", "")))
    found = await find_running(urls, BackendClient, _PATIENCE)
    if found is None:
        places = ", ".join(urls)
        problem = f"nothing is named, and no server answers at {places}. Do one of these:"
        raise InvalidConfiguration("backend.url", problem + _COMMANDS)
    return found


def with_backend(settings: Settings, found: Found | None) -> Settings:
    """Return the settings of an operator who names what was found where there is nothing else."""
    if found is None or not names_nothing(settings):
        return settings
    named = {"url": found.url, "kind": found.kind.value}
    return settings.model_copy(update={"backend": settings.backend.model_copy(update=named)})
