"""The events of the dashboard's feed: the whole state, then its changes.

    event: state
    data: {"version":"0.2.0","instance":"5f3a1c","number":17,"models":[...],"requests":[...],...}

    event: requests
    data: {"number":18,"rows":[{"id":"5f3a1c-17","phase":"over","status":200,...}]}

`watching` writes them; the page and `temper top` read them.
"""

import msgspec

from proxy.observability.history import CountsBySpan, Point
from proxy.observability.rows import PendingCall, Row, ToolServerCard


class ModelCard(msgspec.Struct, frozen=True):
    """One model: its state and its requests; None means unknown.

    `tuned` are the settings from `temper tune`, `lacks` the features that its engine rejected.
    `queue` has the names of the requests that wait for a slot, in the order in which they will be
    served. `presets` are additional names of the model with other defaults.
    """

    name: str
    title: str
    backend: str
    state: str
    problem: str
    restarts: int
    busy: int
    waiting: int
    slots: int | None
    window: int | None
    share: float | None
    tuned: str = ""
    lacks: tuple[str, ...] = ()
    queue: tuple[str, ...] = ()
    presets: tuple[str, ...] = ()


class About(msgspec.Struct, frozen=True):
    """The constants of a page: the worker that serves it, and the operations that it permits.

    With `keeps_exchanges` the page can show the bodies of requests and responses.
    """

    version: str
    workers: int = 1
    worker: int = 1
    read_only: bool = False
    keeps_exchanges: bool = False


class InitialState(About, frozen=True, kw_only=True):
    """The whole state, which is the first event for a page.

    `instance` identifies the process that serves the page. `number` is the change counter of its
    board. Each of the `points` counts the requests of `step` seconds.
    """

    instance: str
    started: float
    now: float
    number: int
    step: int
    models: tuple[ModelCard, ...]
    totals: CountsBySpan
    points: tuple[Point, ...]
    requests: tuple[Row, ...]
    tool_servers: tuple[ToolServerCard, ...] = ()
    confirmations: tuple[PendingCall, ...] = ()


class Change(msgspec.Struct, frozen=True):
    """The changes since an earlier event; `number` is the board's change counter at this event."""

    number: int


class Batch(Change, frozen=True):
    """Rows that are new or have changed."""

    rows: tuple[Row, ...]


class Cards(Change, frozen=True):
    """The models, as they are now."""

    models: tuple[ModelCard, ...]


class ToolCards(Change, frozen=True):
    """The tool servers, as they are now."""

    tool_servers: tuple[ToolServerCard, ...]


class Pending(Change, frozen=True):
    """All calls that are waiting for approval."""

    confirmations: tuple[PendingCall, ...]


class Sums(Change, frozen=True):
    """Totals of all requests, and the time buckets that may have changed."""

    now: float
    totals: CountsBySpan
    points: tuple[Point, ...]
