"""A mock backend and a client in lockstep: a token is sent when the client has the previous token.

The proxy therefore reads and writes each token separately, and does the same work on machines of
any speed.
"""

import asyncio
from collections.abc import Callable

from benchmarks.healthy.ledger import Ledger
from benchmarks.load import backend
from benchmarks.load.client import Connection

# After this time, the next token is sent even if the proxy holds back the previous token.
_PATIENCE_SECONDS = 0.5


class Pace:
    """Sends a token when the client has received all earlier tokens.

    `other_requests` counts the proxy's requests other than chats, such as for the list of models.
    """

    def __init__(self) -> None:
        self.other_requests = 0
        self._timer: asyncio.TimerHandle | None = None
        self._send: Callable[[], None] = _nothing
        self._sent = 0

    def wait(self, sent: int, send: Callable[[], None]) -> asyncio.TimerHandle:
        """Call `send` when this many tokens have arrived, or after a timeout."""
        self._sent, self._send = sent, send
        self._timer = asyncio.get_running_loop().call_later(_PATIENCE_SECONDS, self._send_next)
        return self._timer

    def note(self, arrived: int) -> None:
        """Record the number of tokens that the client has received."""
        if arrived >= self._sent:
            self._send_next()

    def _send_next(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        send, self._send, self._timer = self._send, _nothing, None
        send()


def _nothing() -> None:
    pass


class PacedBackend(backend.Connection):
    """A connection of the mock backend that keeps pace with the client."""

    def __init__(self, pace: Pace) -> None:
        super().__init__(Ledger())
        self._pace = pace

    def on_message_complete(self) -> None:
        if not self.is_chat:
            self._pace.other_requests += 1
        super().on_message_complete()

    def _continue(self, stream: backend.TimedStream, index: int, due: float) -> None:
        self._timer = self._pace.wait(index, lambda: self._send_token(stream, index, due))


class PacedClient(Connection):
    """A client connection that reports the number of received tokens."""

    def __init__(self, pace: Pace) -> None:
        super().__init__()
        self._pace = pace

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._pace.note(len(self._answer.delays))
