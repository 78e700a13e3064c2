"""What Temper must not lose: exchanges of the recording, and responses that it stores.

Only a fault of the disk, or a killed process, may lose them. After a fault of the disk, the log
must say that something was lost.
"""

import contextlib
import logging
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec

from benchmarks.faults.material import number_in
from proxy.observability.recording import read_recording
from tests.simulation.clock import CLOCK
from tests.simulation.exchanges import Exchange, is_replayed, open_client, response_id
from tests.simulation.scenario import Scenario
from tests.simulation.store import Store
from tests.simulation.temper import Temper

_RECORDING = logging.getLogger("proxy.observability.recording")
_RESPONSES = logging.getLogger("proxy.state.responses_file")
_LATEST = 30.0  # seconds after a response in which a slow disk has written its exchange
_FLUSHED = 5.0  # seconds after a response in which a disk that is not slow has written it


@dataclass(slots=True)
class Losses:
    """The exchanges of a run that were answered, and the warnings of the log by logger."""

    scenario: Scenario
    temper: Temper
    store: Store
    problems: list[str] = field(default_factory=list)
    warnings: Counter[str] = field(default_factory=Counter)
    _answered: list[tuple[int, Exchange]] = field(default_factory=list)

    @contextlib.contextmanager
    def watched_log(self) -> Iterator[None]:
        """Count the warnings about files while the block runs."""
        for logger in (_RECORDING, _RESPONSES):
            logger.setLevel(logging.WARNING)
            logger.addFilter(self._count)
        try:
            yield
        finally:
            for logger in (_RECORDING, _RESPONSES):
                logger.setLevel(logging.NOTSET)
                logger.removeFilter(self._count)

    def _count(self, record: logging.LogRecord) -> bool:
        self.warnings[record.name] += 1
        return record.levelno >= logging.ERROR

    def has_trouble(self, begun: float, over: float) -> bool:
        """Return whether the disk may have failed between these times."""
        return any(
            event.kind.startswith("disk")
            and event.time <= over
            and begun <= event.time + event.seconds
            for event in self.scenario.events
        )

    def is_lost(self, begun: float, over: float) -> bool:
        """Return whether a response that was stored between these times may be missing now."""
        has_copy = self.scenario.has_files or self.scenario.has_store
        kills = [kill for kill in self.temper.kills if kill.overlaps(begun, CLOCK.now)]
        return (
            any(kill.loses or not has_copy for kill in kills)
            or self.has_trouble(begun, over)
            or self.store.has_trouble(begun, CLOCK.now)
        )

    def note_answer(self, number: int, exchange: Exchange) -> None:
        """Note an exchange that must be recorded; copies and very long responses are not."""
        is_long = exchange.plan.demand.is_endless
        if exchange.is_answered and not is_long and not is_replayed(exchange):
            self._answered.append((number, exchange))

    def note_missing_response(self, number: int, begun: float, over: float) -> None:
        """Check that the log names the reason of a stored response that was not found."""
        is_killed = any(kill.overlaps(begun, over) for kill in self.temper.kills)
        if not is_killed and not self.warnings[_RESPONSES.name]:
            self.problems.append(f"request {number}: a response was lost, and the log has no line")

    async def check_responses(self) -> int:
        """Check at the end of a run that each stored response can be read; return their number."""
        count = 0
        if not (self.scenario.has_files or self.scenario.has_store):
            return count
        for number, exchange in self._answered:
            name = response_id(exchange.response) if exchange.response is not None else None
            if name is None or self.is_lost(exchange.begun, exchange.over + _FLUSHED):
                continue
            count += 1
            async with open_client() as client:
                headers = exchange.plan.request.headers
                read = await client.get(f"/v1/responses/{name}", headers=headers)
            if read.status_code != 200:
                problem = f"its response cannot be read: {read.status_code}"
                self.problems.append(f"request {number}: {problem}")
        return count

    def check_recording(self) -> int:
        """Check the recording at the end of a run; return the number of its exchanges."""
        path = self.temper.disk.recording
        if not path.exists():
            return 0
        read = [*read_recording(path)]
        recorded = Counter(number_in(msgspec.json.encode(exchange.request)) for exchange in read)
        missing = set[int]()
        for number, exchange in self._answered:
            latest = exchange.over + _LATEST
            if any(kill.overlaps(exchange.begun, latest) for kill in self.temper.kills):
                continue
            if recorded[number]:
                recorded[number] -= 1
            elif self.has_trouble(exchange.begun, latest):
                missing.add(number)
            else:
                self.problems.append(f"request {number} was not recorded")
        if missing and not self.warnings[_RECORDING.name]:
            self.problems.append(f"the log does not say that exchanges were lost: {missing}")
        return len(read)
