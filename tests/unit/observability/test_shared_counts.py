import os
from pathlib import Path

import msgspec
import pytest

from proxy.observability.history import Counted, Counts, History, totals_of
from proxy.observability.record import RequestRecord
from proxy.observability.shared_counts import SharedCounts, WorkerPlace

RECORD = RequestRecord(id="r", begun_at=0.0, seconds=1.0, status=502, service="one")


def counted(*moments: float) -> Counted:
    history = History()
    for moment in moments:
        history.take(RECORD, moment)
    return history.counted()


@pytest.fixture
def shared(tmp_path: Path) -> SharedCounts:
    return SharedCounts(WorkerPlace(1, tmp_path))


def written_by_another(shared: SharedCounts, body: bytes, process: int = 1) -> None:
    assert process != os.getpid()
    (shared.place.folder / f"requests-{process}.json").write_bytes(body)


def test_others_are_told_what_was_published_and_nobody_counts_itself_twice(
    shared: SharedCounts,
) -> None:
    shared.publish(counted(1.0, 2.0))
    assert shared.others() == ()
    (own,) = shared.place.folder.iterdir()
    own.rename(own.with_name("requests-1.json"))
    assert shared.others() == (counted(1.0, 2.0),)


def test_processes_are_added_up_over_the_hour_and_over_all(shared: SharedCounts) -> None:
    for process, moments in ((1, (1.0, 3500.0)), (2, (3550.0, 3601.0))):
        written_by_another(shared, msgspec.json.encode(counted(*moments)), process)
    told = totals_of(shared.others(), 3661.0)
    assert told.start["one"] == told.start[""] == Counts(requests=4, failed=4)
    assert told.hour["one"].requests == 3


def test_a_file_that_cannot_be_read_counts_for_nothing(shared: SharedCounts) -> None:
    written_by_another(shared, b"{")
    (shared.place.folder / "requests-2.json").mkdir()
    assert shared.others() == ()


def test_a_folder_that_is_gone_stops_nobody(tmp_path: Path) -> None:
    shared = SharedCounts(WorkerPlace(1, tmp_path / "gone"))
    shared.publish(counted(1.0))
    assert shared.others() == ()
