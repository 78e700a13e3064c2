"""F58: durations are measured by monotonic clocks."""

import ast
import time
from pathlib import Path

import pytest

from proxy.api.app import ServerOptions
from proxy.api.streaming import StreamTimeouts
from tests.fakes.running_proxy import request, temper
from tests.fakes.sse import calls

pytestmark = pytest.mark.fault("F58")

PROXY = Path(__file__).parents[2] / "proxy"
HOUR = 3600.0

# The only users of the wall clock: all of them store a timestamp.
DATED = {
    "agents/model.py": "the moment at which an answer was created",
    "api/dialects.py": "the moment at which an answer was created",
    "api/routes/ollama.py": "the moment at which a model is to be unloaded, for clients",
    "cli/top.py": "how long ago something was, for people",
    "observability/board.py": "the moment at which the board began; from then on time is steady",
    "observability/live_request.py": "the moment at which a request began, for its record",
    "observability/logs.py": "the moment in a log line",
    "observability/tracing.py": "the moments of a span",
    "processes/slot_cache.py": "when a prompt cache was used, over restarts",
    "processes/slot_files.py": "how old the file of a prompt cache is, over restarts",
    "state/responses_file.py": "how old a response is, over restarts and for several processes",
}
WALL_CLOCKS = {"time.time", "time.time_ns", "datetime.now", "datetime.utcnow", "datetime.today"}


def readings(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    named = {ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    return {name for name in named if name.removeprefix("datetime.") in WALL_CLOCKS} | {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "time"
        for alias in node.names
        if alias.name in ("time", "time_ns")
    }


@pytest.mark.deep
def test_only_listed_modules_read_the_wall_clock() -> None:
    reading = {path.relative_to(PROXY).as_posix() for path in PROXY.rglob("*.py") if readings(path)}
    assert reading <= set(DATED)


class JumpingClock:
    """A wall clock that jumps by hours, forward and back, each time it is read."""

    def __init__(self) -> None:
        self.looks = 0

    def __call__(self) -> float:
        self.looks += 1
        return 1_700_000_000 + HOUR * (self.looks if self.looks % 2 else -self.looks)


async def test_jumps_of_the_wall_clock_neither_end_nor_delay_requests(
    *, stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    jumping = JumpingClock()
    monkeypatch.setattr(time, "time", jumping)
    serving = ServerOptions(timeouts=StreamTimeouts(keep_alive=60, deadline=60))
    good = calls("get_weather", '{"city": "Paris"}')
    async with temper(calls("get_weather", "{}"), good, good, serving=serving) as proxy:
        answers = [await proxy.ask(request(), stream=stream) for _ in range(2)]
    assert [answer.report["outcome"] for answer in answers] == ["retried", "clean"]
    assert jumping.looks
