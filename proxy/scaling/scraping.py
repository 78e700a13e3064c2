"""Serves the metrics of each replica on a separate port, and publishes the port for Prometheus.

Through the load balancer, `/metrics` would return the metrics of an arbitrary replica. Each replica
writes a file for Prometheus' file-based service discovery:

    temper-4711.json    [{"targets": ["10.0.0.7:43121"]}]
"""

import contextlib
import os
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
from starlette.types import ASGIApp, Receive, Scope, Send

from proxy.api.errors import error_response, not_found
from proxy.api.routes.monitoring import METRICS_PATH
from proxy.api.server import listen, serving
from proxy.conversation import json
from proxy.errors import InvalidConfiguration

_PREFIX = "temper-"


@dataclass(frozen=True, slots=True)
class MetricsOnly:
    """ASGI middleware that rejects every path except `/metrics`."""

    app: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        is_metrics = scope["path"] == METRICS_PATH
        refusal = error_response(not_found(scope["path"], (METRICS_PATH,)), scope)
        await (self.app if is_metrics else refusal)(scope, receive, send)


@asynccontextmanager
async def serve_metrics(app: ASGIApp, folder: Path, host: str) -> AsyncGenerator[None]:
    """Serve the metrics on a free port of `host` while the block runs; publish it in `folder`."""
    with contextlib.closing(listen(host, 0)) as listening:
        port = listening.getsockname()[1]
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        async with serving(MetricsOnly(app), listening, 1, signals=()):  # Serve handles signals
            with publish_address(folder, address):
                yield


@contextmanager
def publish_address(folder: Path, address: str) -> Iterator[Path]:
    """Write an address to a file that exists while the block runs.

    Files of killed processes are removed. Raises `InvalidConfiguration` if the folder is not
    writable.
    """
    try:
        file = _write(folder, address)
    except OSError as error:
        problem = f"should be a folder that every replica may write to, not {folder}"
        raise InvalidConfiguration("scraping", f"{problem}: {error.strerror}") from error
    try:
        yield file
    finally:
        file.unlink(missing_ok=True)


def _write(folder: Path, address: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for other in folder.glob(f"{_PREFIX}*.json"):
        number = other.stem.removeprefix(_PREFIX)
        if number.isdecimal() and not psutil.pid_exists(int(number)):
            other.unlink(missing_ok=True)
    file = folder / f"{_PREFIX}{os.getpid()}.json"
    unfinished = file.with_suffix(".new")  # Prometheus may read at any moment
    unfinished.write_bytes(json.dump([{"targets": [address]}]))
    unfinished.replace(file)
    return file
