"""Opens the configured observers: logs, metrics, traces, recordings and the dashboard's board."""

import asyncio
from collections.abc import AsyncGenerator, Generator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import replace

from pydantic import BaseModel, SecretStr

from proxy.api.keys import read_keys
from proxy.errors import InvalidConfiguration
from proxy.observability.board import Board
from proxy.observability.logs import RequestLog
from proxy.observability.metrics import Metrics
from proxy.observability.observers import Observers
from proxy.observability.peer_workers import SharedCounts, SiblingBoards, WorkerIdentity
from proxy.observability.record import Sink
from proxy.observability.recording import KeptExchanges, Recording
from proxy.settings import Settings

_PUBLISH_SECONDS = 1.0


@contextmanager
def open_observers(
    settings: Settings, identity: WorkerIdentity | None = None, replica: str | None = None
) -> Generator[Observers, None, None]:
    """Open the configured observers.

    `identity` is this process among several workers, None if it is the only one. `replica` is the
    name of this replica in traces, None without replicas. Raises `InvalidConfiguration`.
    """
    sinks: list[Sink] = [RequestLog()]
    collector = settings.tracing.url
    with ExitStack() as opened:
        if collector is not None:
            sinks.append(_open_tracing(collector, opened, replica))
        recording = _open_recording(settings, opened)
        meter = Metrics() if settings.metrics.enabled else None
        board = None
        if settings.ui.enabled:
            kept = recording.kept if recording is not None else None
            board = Board() if kept is None else Board(has_exchange=kept.has)
        observers = Observers(tuple(sinks), meter, collector is not None, recording, board)
        if identity is not None:
            siblings = SiblingBoards(identity.folder, board.instance) if board is not None else None
            observers = replace(observers, shared=SharedCounts(identity), siblings=siblings)
        yield observers


@asynccontextmanager
async def publish_to_peers(observers: Observers) -> AsyncGenerator[None]:
    """Share this worker's counts and state with other workers during the block.

    At the end, the counts are published once more, because those of the last second may be missing.
    """
    shared, siblings, board = observers.shared, observers.siblings, observers.board
    if shared is None or siblings is None or board is None:
        yield
        return
    publishing = asyncio.create_task(_publish(shared, board))
    try:
        async with siblings.serving():
            yield
    finally:
        publishing.cancel()
        shared.publish(board.history.counts())


async def _publish(shared: SharedCounts, board: Board) -> None:
    published = 0
    while True:
        await asyncio.sleep(_PUBLISH_SECONDS)
        if board.number != published:
            published = board.number
            shared.publish(board.history.counts())


def _open_tracing(url: str, opened: ExitStack, replica: str | None) -> Sink:
    try:
        from proxy.observability.tracing import Tracing, exporter_to

        exporter = exporter_to(url)
    except ImportError as missing:
        problem = "needs OpenTelemetry: pip install 'temper-proxy[otel]'"
        raise InvalidConfiguration("tracing.url", problem) from missing
    tracing = Tracing(exporter, replica)
    opened.callback(tracing.close)
    return tracing


def _open_recording(settings: Settings, opened: ExitStack) -> Recording | None:
    section = settings.recording
    if section.path is None and not section.keep_bytes:
        return None
    kept = KeptExchanges(section.keep_bytes) if section.keep_bytes else None
    # secrets are removed from recordings, because people attach recordings to bug reports
    recording = Recording(section.path, section.max_bytes, secrets_of(settings), kept)
    opened.callback(recording.close)
    return recording


def secrets_of(settings: Settings) -> tuple[str, ...]:
    """Return every configured secret, and the keys in server.api_keys_file."""
    file = settings.server.api_keys_file
    keys = read_keys(file).values() if file is not None else ()
    return (*secrets_in(settings), *keys)


def secrets_in(value: object) -> Iterator[str]:
    """Return every secret within the settings, at any depth."""
    match value:
        case SecretStr():
            yield value.get_secret_value()
        case BaseModel():
            for _, part in value:
                yield from secrets_in(part)
        case dict():
            for part in value.values():
                yield from secrets_in(part)
        case _:
            pass
