"""Temper on Ray Serve: `serve run proxy.scaling.serve:app config=temper.toml replicas=2`.

The only module that imports ray. Serve pickles what it is given and keeps it in its store, so that
is the name of a file; each replica reads its settings and its keys on its own node.
"""

import os
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import ray
from ray import serve
from ray.serve import Application
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from proxy.api.hosted import Hosted
from proxy.errors import TemperError
from proxy.scaling.arguments import check_settings, deployment_options, fingerprint, read_arguments
from proxy.scaling.scraping import serve_metrics
from proxy.settings import load_settings

_ID = b"x-request-id"
_HAPROXY = "RAY_SERVE_ENABLE_HA_PROXY"  # on every node, as Ray itself reads it


def app(args: Mapping[str, object]) -> Application:
    """Build the application from an operator's arguments; raises ValueError for what is wrong."""
    try:
        arguments = read_arguments(args)
        is_behind_haproxy = os.environ.get(_HAPROXY) == "1"
        settings = check_settings(arguments)
        options = deployment_options(arguments, settings, is_behind_haproxy=is_behind_haproxy)
    except TemperError as error:
        raise ValueError(str(error)) from None
    deployment = serve.deployment(serve.ingress()(Replica), **options)
    return deployment.bind(arguments.config, arguments.scraping, fingerprint(arguments))


class Replica:
    """One Temper; Serve asks it for its application, for its health, and to end.

    It ends as its application does. Another `fingerprint` makes Serve replace it.
    """

    def __init__(self, config: str, scraping: str, fingerprint: str) -> None:
        host = _node_address()

        def beside(found: ASGIApp) -> AbstractAsyncContextManager[None]:
            return serve_metrics(found, Path(scraping), host) if scraping else nullcontext()

        context = serve.get_replica_context()
        read = partial(load_settings, Path(config) if config else None)
        self.fingerprint = fingerprint
        self._hosted = Hosted(
            read, beside=beside, replica=f"{context.app_name}#{context.replica_tag}"
        )

    async def __serve_build_asgi_app__(self) -> ASGIApp:
        """Open Temper, its model included; raises RuntimeError with the reason in one sentence."""
        try:
            await self._hosted.open()
            await self._hosted.until_loaded()
        except TemperError as error:
            await self._hosted.close()
            raise RuntimeError(str(error)) from None
        return WithoutId(self._hosted)

    async def check_health(self) -> None:
        """Raise RuntimeError where a model stays down: Serve starts another replica then."""
        if problem := self._hosted.problem:
            raise RuntimeError(problem)


def _node_address() -> str:
    """Return where other nodes reach this one; what Ray guesses may be beyond its own network."""
    own = ray.get_runtime_context().get_node_id()
    return next(str(one["NodeManagerAddress"]) for one in ray.nodes() if one["NodeID"] == own)


@dataclass(frozen=True, slots=True)
class WithoutId:
    """ASGI middleware: leaves the id of a request to Serve, which answers it as well."""

    app: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_without_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [one for one in message["headers"] if one[0].lower() != _ID]
            await send(message)

        await self.app(scope, receive, send_without_id)
