"""`python -m benchmarks.dashboard_feed`: what one watcher of the dashboard costs, by rate.

Nothing is sent and no time passes: a board gets so many requests a second of a clock that is set by
hand, and what is measured is the CPU time in which the feed makes its events. So it can be measured
on a busy machine; the whole, with sockets and a client, is `python -m benchmarks.dashboard`.
"""

import sys
import time
from dataclasses import dataclass

from proxy.api.app import ServerOptions
from proxy.api.feed_events import About
from proxy.api.watching import PAUSE, Watcher, Watching
from proxy.backends.openai_compatible import AdaptiveEngine
from proxy.backends.transport import BackendClient
from proxy.facts import Asked, ReplyOutcome
from proxy.observability.board import Board
from proxy.observability.live_request import BoardLink, LiveRequest
from proxy.observability.live_request import RequestTarget as AskedFor

RATES = (40, 160, 400, 800, 1600)  # requests a second
_BATCHES = 40
_RUNS = 5  # of which the best counts: whatever else runs can only add to it
_BEFORE = 500


@dataclass(frozen=True, slots=True)
class Cost:
    """What the feed takes for each request: microseconds of the CPU, and bytes."""

    microseconds: float
    size: float


def main() -> int:
    """Measure every rate, and print it."""
    for rate in RATES:
        best = min((feed_cost(rate) for _ in range(_RUNS)), key=lambda one: one.microseconds)
        told = f"{best.microseconds:6.2f} us and {best.size:4.0f} bytes for each"
        print(f"{rate:5} requests a second: {told}")  # noqa: T201
    return 0


def feed_cost(rate: int, batches: int = _BATCHES) -> Cost:
    """Measure the feed while `rate` requests a second come and go."""
    now = [0.0]
    board = Board(clock=lambda: now[0])
    services = ServerOptions().alone(AdaptiveEngine(BackendClient("http://127.0.0.1:9")))
    watching = Watching(board, services, About("0"))
    for _ in range(_BEFORE):
        _answer(board)
    watcher = Watcher(watching, watching.state())
    spent, size, each = 0.0, 0, round(rate * PAUSE)
    for _ in range(batches):
        for _ in range(each):
            _answer(board)
        now[0] += PAUSE
        begun = time.thread_time()
        events = watcher.news()
        spent += time.thread_time() - begun
        size += len(events)
    return Cost(spent / (each * batches) * 1e6, size / (each * batches))


def _answer(board: Board) -> None:
    """Have one clean request on the board, from its beginning to its end."""
    live = LiveRequest("chatcmpl-0123456789abcdef", link=BoardLink(board))
    live.asked = AskedFor("qwen3-8b", "default", "http://127.0.0.1:8080", stream=False)
    live.wait(None)
    live.admit(0.0)
    with live.attempt({}):
        live.note_first_token()
    live.facts, live.status, live.outcome = (Asked("as_asked"),), 200, ReplyOutcome.CLEAN
    live.record()


if __name__ == "__main__":
    sys.exit(main())
