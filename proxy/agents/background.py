"""Temper's server in a thread of a program, for clients that need a base URL.

with local_server("http://127.0.0.1:8080") as server:
    client = OpenAI(base_url=f"{server.url}/v1", api_key=server.api_key)
"""

import asyncio
import contextlib
import secrets
from collections.abc import AsyncGenerator, Mapping
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Self

from anyio.from_thread import start_blocking_portal
from pydantic import SecretStr

from proxy.agents.model import settings_from_arguments
from proxy.api.server import listen, open_server
from proxy.errors import InvalidConfiguration
from proxy.settings import Settings, load_settings

_HOST = "127.0.0.1"


class LocalServer:
    """A server that runs during its `with` or `async with` block.

    It listens on a free port of the loopback interface. Clients must send `api_key`.
    """

    def __init__(self, settings: Settings) -> None:
        key = settings.server.api_key
        self.api_key = "" if key is None else key.get_secret_value()
        self._settings = settings
        self._url = ""
        self._running = ExitStack()

    @property
    def url(self) -> str:
        """The address without a path; raises RuntimeError if the server is not running."""
        if not self._url:
            raise RuntimeError("the server is not running: use it within `with`")
        return self._url

    def __enter__(self) -> Self:
        with ExitStack() as starting:
            portal = starting.enter_context(start_blocking_portal("asyncio"))
            running = portal.wrap_async_context_manager(_serve_locally(self._settings))
            self._url = starting.enter_context(running)
            self._running = starting.pop_all()
        return self

    def __exit__(self, *_error: object) -> None:
        self._url = ""
        self._running.close()

    async def __aenter__(self) -> Self:
        return await asyncio.to_thread(self.__enter__)

    async def __aexit__(self, *_error: object) -> None:
        await asyncio.to_thread(self.__exit__)


def local_server(
    backend_url: str | None = None,
    *,
    path: str | Path | None = None,
    ollama: str | None = None,
    config: str | Path | None = None,
    settings: Mapping[str, Mapping[str, object]] | None = None,
) -> LocalServer:
    """Create a server for a running engine, a model file, or a model of Ollama.

    `settings` are additional settings, by section and name. As in `temper serve`, other settings
    come from the environment, and from `config` or the `temper.toml` in the current folder. The
    server always chooses a free port, and it generates a key if none is set. Raises
    `InvalidConfiguration`; entering the block can also raise `ProcessFailed`.
    """
    address: dict[str, object] = {"host": _HOST, "port": 0, "workers": 1}
    overrides = settings_from_arguments(backend_url, path, ollama, settings or {})
    for name in address:
        if name in overrides.get("server", {}):
            problem = "cannot be set: local_server() listens on a free port of 127.0.0.1"
            raise InvalidConfiguration(f"server.{name}", f"{problem}: use `temper serve` instead")
    overrides["server"] = {**overrides.get("server", {}), **address}
    loaded = load_settings(None if config is None else Path(config), overrides, "argument")
    # Other users of this machine can connect as well, so the server always needs a key.
    if loaded.server.api_key is None:
        key = SecretStr(secrets.token_urlsafe(32))
        server = loaded.server.model_copy(update={"api_key": key})
        loaded = loaded.model_copy(update={"server": server})
    return LocalServer(loaded)


@asynccontextmanager
async def _serve_locally(settings: Settings) -> AsyncGenerator[str]:
    with contextlib.closing(listen(_HOST, 0)) as listening:
        async with open_server([listening], settings, signals=()) as (_, address):
            yield address.url
