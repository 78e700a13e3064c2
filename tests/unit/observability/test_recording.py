import json
import logging
from pathlib import Path

import pytest

from proxy.errors import InvalidConfiguration
from proxy.guardrails.offer import Mode
from proxy.observability.kept_exchanges import KeptExchanges
from proxy.observability.recording import (
    RecordedAnswer,
    RecordedExchange,
    RecordedModel,
    RecordedPolicy,
    RecordedVerdict,
    Recording,
    read_recording,
)

EXCHANGE = RecordedExchange(
    id="r",
    at=1.0,
    model=RecordedModel(names=("m",), architecture="", template=""),
    policy=RecordedPolicy(
        mode=Mode.ON, text_policy=None, attempts=3, is_strict=False, most_repeats=3, most_rounds=9
    ),
    request={"model": "m", "messages": [{"role": "user", "content": "The key is canary-1."}]},
    generations=((["text", "Hi, canary-2."], ["finished", "stop"]),),
    answer=RecordedAnswer(text="Hi.", finish_reason="stop"),
    verdict=RecordedVerdict(outcome="clean", attempts=(("as_asked", None),), repairs=""),
)


def test_an_exchange_is_one_line_that_can_be_read_back(tmp_path: Path) -> None:
    path = tmp_path / "recording.jsonl"
    recording = Recording(path, 100_000, ())
    recording.write(EXCHANGE)
    recording.write(EXCHANGE)
    recording.close()
    assert path.read_bytes().count(b"\n") == 2
    assert list(read_recording(path)) == [EXCHANGE, EXCHANGE]


def test_secrets_are_taken_out_and_the_rest_stays(tmp_path: Path) -> None:
    path = tmp_path / "recording.jsonl"
    recording = Recording(path, 100_000, ("canary-1",))
    recording.write(EXCHANGE, "canary-2")
    recording.close()
    assert "canary" not in path.read_text()
    (read,) = read_recording(path)
    assert read.generations[0][0] == ["text", "Hi, [redacted]."]
    assert read.verdict == EXCHANGE.verdict


def test_nobody_else_can_read_it(tmp_path: Path) -> None:
    path = tmp_path / "recording.jsonl"
    Recording(path, 100_000, ()).close()
    assert path.stat().st_mode & 0o777 == 0o600


def test_it_goes_on_where_it_ended_and_ends_at_its_bound(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "recording.jsonl"
    first = Recording(path, 100_000, ())
    first.write(EXCHANGE)
    first.close()
    size = path.stat().st_size
    second = Recording(path, 2 * size, ())
    for _ in range(3):
        second.write(EXCHANGE)
    second.close()
    assert path.stat().st_size == 2 * size
    assert second.is_over
    (warning,) = [one for one in caplog.records if one.levelno == logging.WARNING]
    assert "recording.max_bytes" in warning.getMessage()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full device here")
def test_a_full_disk_ends_the_recording_and_nothing_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
    recording = Recording(Path("/dev/full"), 100_000, ())
    recording.write(EXCHANGE)
    recording.close()
    assert recording.is_over
    assert "No space left" in caplog.text


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfiguration, match=r"recording\.path: cannot write to"):
        Recording(tmp_path / "no" / "folder", 100_000, ())


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("{", "line 2 is not of a recording: the line"),
        ("[]", "line 2 is not of a recording"),
        ('{"version": 3}', "version"),
        (json.dumps({**json.loads(EXCHANGE.model_dump_json()), "extra": 1}), "extra"),
    ],
)
def test_a_line_that_is_none_is_named(tmp_path: Path, line: str, problem: str) -> None:
    path = tmp_path / "recording.jsonl"
    path.write_text(f"{EXCHANGE.model_dump_json()}\n{line}\n")
    with pytest.raises(InvalidConfiguration, match=problem):
        list(read_recording(path))


def test_lines_of_the_version_before_are_still_read(tmp_path: Path) -> None:
    before = json.loads(EXCHANGE.model_dump_json())
    assert before.pop("run") is None
    path = tmp_path / "recording.jsonl"
    path.write_text(json.dumps({**before, "version": 1}))
    (read,) = read_recording(path)
    assert (read.version, read.run) == (1, None)
    assert read.generations == EXCHANGE.generations


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfiguration, match="cannot be read"):
        list(read_recording(tmp_path / "nothing"))


def test_empty_lines_do_not_count(tmp_path: Path) -> None:
    path = tmp_path / "recording.jsonl"
    path.write_text(f"\n{EXCHANGE.model_dump_json()}\n\n")
    assert list(read_recording(path)) == [EXCHANGE]


def test_the_latest_exchanges_are_kept_in_memory_as_they_stand_in_the_file(tmp_path: Path) -> None:
    path, kept = tmp_path / "recording.jsonl", KeptExchanges(100_000)
    recording = Recording(path, 100_000, ("canary-1",), kept)
    recording.write(EXCHANGE, "canary-2", number=7)
    recording.leave_out(8)
    recording.close()
    assert kept.line(7) == path.read_bytes()
    assert b"canary" not in path.read_bytes()
    assert kept.reason(8) == "too_large"


def test_no_file_is_needed_for_it() -> None:
    kept = KeptExchanges(100_000)
    recording = Recording(None, 0, (), kept)
    recording.write(EXCHANGE, number=1)
    recording.close()
    assert kept.has(1)
    without = Recording(None, 0, ())
    without.write(EXCHANGE)
    without.leave_out(1)
