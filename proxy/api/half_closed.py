"""Distinguishes a client that has only finished sending from a disconnected client.

In both cases, the server receives the same packet, a FIN. A client that half-closes its connection
(`shutdown(SHUT_WR)`, RFC 9112, 9.6) still reads its response. For a disconnected client, the
generation should end at once. The server can distinguish the two cases only by sending bytes: the
kernel of a disconnected client responds with a reset.
"""

import asyncio
import socket
from collections.abc import Callable

_FIRST_SECONDS = 0.01
_LONGEST_SECONDS = 5.0
# A check after at least this delay sends a new probe: the client may have disconnected meanwhile.
_AGAIN_SECONDS = 1.0


class DepartureCheck:
    """Probes a half-closed connection; aborts the connection when the client's kernel resets it.

    `probe` sends a few bytes that a waiting client ignores. The delays between checks double from
    10 ms to 5 s.
    """

    def __init__(self, transport: asyncio.Transport, probe: Callable[[], None]) -> None:
        self._transport = transport
        self._probe = probe
        self._delay = _FIRST_SECONDS
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._probe()
        self._schedule()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _schedule(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._delay, self._check)
        self._delay = min(2 * self._delay, _LONGEST_SECONDS)

    def _check(self) -> None:
        if self._transport.is_closing():
            return
        # after the end of a socket's input, event loops no longer watch it, so they miss the reset
        connection = self._transport.get_extra_info("socket")
        if connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self._transport.abort()
            return
        if self._delay > _AGAIN_SECONDS:
            self._probe()
        self._schedule()
