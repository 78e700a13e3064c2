"""Temper on Ray Serve: `serve run proxy.scaling.serve:app config=temper.toml replicas=2`.

The only module that imports ray. Serve pickles and stores the arguments, so they only name a file;
each replica reads the settings and keys from this file on its node.
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
_HAPROXY = "RAY_SERVE_ENABLE_HA_PROXY"  # Ray reads this variable on every node


def app(args: Mapping[str, object]) -> Application:
    """Build the application; raises ValueError for invalid arguments."""
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
    """A replica of Temper, with the methods that Serve calls.

    `fingerprint` is a hash of the settings file; Serve replaces replicas whose arguments changed.
    """

    def __init__(self, config: str, scraping: str, fingerprint: str) -> None:
        host = _node_address()

        def serve_own_metrics(asgi_app: ASGIApp) -> AbstractAsyncContextManager[None]:
            return serve_metrics(asgi_app, Path(scraping), host) if scraping else nullcontext()

        context = serve.get_replica_context()
        read = partial(load_settings, Path(config) if config else None)
        self.fingerprint = fingerprint
        self._hosted = Hosted(
            read, companion=serve_own_metrics, replica=f"{context.app_name}#{context.replica_tag}"
        )

    async def __serve_build_asgi_app__(self) -> ASGIApp:
        """Open Temper and load its model; raises RuntimeError with the reason of a failure."""
        try:
            await self._hosted.open()
            await self._hosted.until_loaded()
        except TemperError as error:
            await self._hosted.close()
            raise RuntimeError(str(error)) from None
        return WithoutId(self._hosted)

    async def check_health(self) -> None:
        """Raise RuntimeError if a model is down, so that Serve starts another replica."""
        if problem := self._hosted.problem:
            raise RuntimeError(problem)


def _node_address() -> str:
    """Return the address of this node for other nodes of the cluster."""
    node_id = ray.get_runtime_context().get_node_id()
    return next(
        str(node["NodeManagerAddress"]) for node in ray.nodes() if node["NodeID"] == node_id
    )


@dataclass(frozen=True, slots=True)
class WithoutId:
    """ASGI middleware that removes Temper's request id, because Serve adds a request id."""

    app: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_without_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [
                    header for header in message["headers"] if header[0].lower() != _ID
                ]
            await send(message)

        await self.app(scope, receive, send_without_id)
