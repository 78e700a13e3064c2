"""A host whose wall clock jumps, and one whose disk accepts no writes for a while."""

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.hosts.network import NoNetwork, run
from tests.hosts.programs import Client, until
from tests.hosts.test_engines import LONG, lan

DAY = 24 * 3600
JUMPS = {"a day forward": DAY, "a day back": -DAY, "ten years forward": 3650 * DAY}
DISK_MB = 64


def sums(client: Client) -> list[float]:
    """Return the sum of each histogram in seconds."""
    lines = client.get("/metrics").text
    return [float(value) for value in re.findall(r"_seconds_sum\S* (\S+)", lines)]


@pytest.mark.fault("F107")
@pytest.mark.parametrize("jump", JUMPS.values(), ids=list(JUMPS))
def test_jump_of_the_wall_clock_changes_no_duration_and_loses_nothing(
    jump: int, *, stream: bool, tmp_path: Path
) -> None:
    faketime = pytest.importorskip("libfaketime", reason="the package libfaketime is missing")
    (library,) = Path(faketime.__file__).parent.rglob("libfaketime.so.1")
    offset = tmp_path / "offset"
    offset.write_text("+0")
    settings = {
        "LD_PRELOAD": str(library),
        "FAKETIME_TIMESTAMP_FILE": str(offset),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }
    with lan(**settings) as pair:
        assert pair.client.ask(stream=stream, idempotency_key="a").ended().is_whole
        answer = pair.client.ask(LONG.replace("4000", "100"), stream=True).begun()
        offset.write_text(f"{jump:+}")
        assert answer.ended().is_whole
        assert pair.client.ask(stream=stream, idempotency_key="a").ended().is_whole
        later = pair.client.ask(stream=stream, dialect="responses").ended()
        (created, *_) = map(int, re.findall(rb'"created_at":(\d+)', later.body))
        assert abs(created - time.time() - jump) < DAY / 2  # Temper has seen the jump
        # the request with a repeated key caused no upstream request
        assert len(pair.engines[0].app.received_headers) == 3
        totals = sums(pair.client)
        assert totals
        assert all(0 <= total < DAY / 2 for total in totals)


@contextmanager
def freezable_disk(folder: Path) -> Iterator[Path]:
    """Mount a file system that `fsfreeze` can block; skips the test where that is impossible."""
    image, mounted = folder / "disk", folder / "mounted"
    mounted.mkdir()
    with image.open("wb") as file:
        file.truncate(DISK_MB * 1024 * 1024)
    try:
        run("mkfs.ext4", "-q", str(image))
        run("mount", "-o", "loop", str(image), str(mounted))
    except NoNetwork as problem:
        pytest.skip(f"no file system can be mounted: {problem}")
    try:
        yield mounted
    finally:
        run("umount", "-l", str(mounted))


@contextmanager
def frozen(disk: Path) -> Iterator[None]:
    """Block all writes; a process that is killed meanwhile would not end before the thaw."""
    run("fsfreeze", "-f", str(disk))
    try:
        yield
    finally:
        run("fsfreeze", "-u", str(disk))


@pytest.mark.fault("F108")
def test_a_disk_that_blocks_all_writes_delays_no_chat_response(
    *, stream: bool, tmp_path: Path
) -> None:
    with freezable_disk(tmp_path) as disk:
        recording = disk / "recording.jsonl"
        settings = {
            "TEMPER_RESPONSES__PATH": str(disk / "responses.db"),
            "TEMPER_RECORDING__PATH": str(recording),
        }
        with lan(**settings) as pair:
            assert pair.client.ask(stream=stream).ended().is_whole
            until(lambda: recording.read_bytes().count(b"\n") == 1)
            with frozen(disk):
                stored = pair.client.ask(stream=stream, dialect="responses")
                answers = [pair.client.ask(f"{i}", stream=stream) for i in range(8)]
                assert all(answer.ended().is_whole for answer in answers)
                assert pair.client.get("/readyz").is_success
                assert stored.ended().words >= 3
            until(lambda: recording.read_bytes().count(b"\n") == 10)
            (response_id, *_) = re.findall(rb'"id":"(resp_\w+)"', stored.body)
            path = f"/v1/responses/{response_id.decode()}"
            until(lambda: pair.client.get(path).is_success)
