"""Checks that Temper does not lose recorded exchanges and stored responses.

They may be missing only after a disk fault or the kill of a process. After a disk fault, the log
must report the loss.
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
_LATEST = 30.0  # seconds after a response within which even a slow disk writes its exchange
_FLUSHED = 5.0  # the same for a disk that is not slow


@dataclass(slots=True)
class Losses:
    """The successful exchanges of a run, and the number of warnings of each logger."""

    scenario: Scenario
    temper: Temper
    store: Store
    problems: list[str] = field(default_factory=list)
    warnings: Counter[str] = field(default_factory=Counter)
    _answered: list[tuple[int, Exchange]] = field(default_factory=list)

    @contextlib.contextmanager
    def watched_log(self) -> Iterator[None]:
        """Count the warnings about the recording and stored responses while the block runs."""
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
        """Return whether a response that was stored between these times may have been lost."""
        has_copy = self.scenario.has_files or self.scenario.has_store
        kills = [kill for kill in self.temper.kills if kill.overlaps(begun, CLOCK.now)]
        return (
            any(kill.loses or not has_copy for kill in kills)
            or self.has_trouble(begun, over)
            or self.store.has_trouble(begun, CLOCK.now)
        )

    def note_answer(self, number: int, exchange: Exchange) -> None:
        """Note an exchange that must be recorded.

        Temper does not record replayed responses, nor responses that exceed the size limit.
        """
        is_long = exchange.plan.demand.is_endless
        if exchange.is_answered and not is_long and not is_replayed(exchange):
            self._answered.append((number, exchange))

    def note_missing_response(self, number: int, begun: float, over: float) -> None:
        """Check that the log reports the loss of a stored response, unless Temper was killed."""
        is_killed = any(kill.overlaps(begun, over) for kill in self.temper.kills)
        if not is_killed and not self.warnings[_RESPONSES.name]:
            self.problems.append(f"request {number}: a response was lost, and the log has no line")

    async def check_responses(self) -> int:
        """Request each stored response at the end of a run; return the number of requests."""
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
        """Check that the recording has every exchange; return the number of its exchanges."""
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
