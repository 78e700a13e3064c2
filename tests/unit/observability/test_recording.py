import errno
import json
import logging
import os
import threading
from itertools import chain
from pathlib import Path

import msgspec
import pytest

from proxy.conversation.json import JsonValue
from proxy.errors import InvalidConfiguration
from proxy.guardrails.offer import Mode
from proxy.observability import recording as recording_module
from proxy.observability.recording import (
    REDACTED,
    KeptExchanges,
    RecordedAnswer,
    RecordedExchange,
    RecordedModel,
    RecordedPolicy,
    RecordedVerdict,
    Recording,
    Redaction,
    read_recording,
)

CANARY = "cAnArY-93"


@pytest.mark.parametrize("text", [CANARY, f"before {CANARY} after", f"{CANARY}{CANARY}"])
def test_a_known_secret_is_redacted_inside_nested_values(text: str) -> None:
    value: JsonValue = {"a": [{"b": text}], "c": 5, "d": None}
    redacted = Redaction([CANARY]).redact(value)
    assert CANARY not in str(redacted)
    assert redacted == {"a": [{"b": text.replace(CANARY, REDACTED)}], "c": 5, "d": None}


def test_a_secret_that_begins_with_another_secret_is_redacted_entirely() -> None:
    assert Redaction(["abcd", "abcdefgh"]).redact_text("abcdefgh") == REDACTED


def test_secrets_added_by_with_secrets_are_also_redacted() -> None:
    redaction = Redaction([CANARY]).with_secrets("another-one", "")
    assert redaction.redact_text(f"{CANARY} another-one") == f"{REDACTED} {REDACTED}"


def test_secrets_of_fewer_than_four_characters_are_ignored() -> None:
    assert Redaction(["", "a", "key"]).redact_text("a key") == "a key"


@pytest.mark.parametrize(
    "name",
    [
        "api_key",
        "apiKey",
        "API-KEY",
        "x-api-key",
        "openai_api_key",
        "Authorization",
        "Proxy-Authorization",
        "cookie",
        "password",
        "db_password",
        "client_secret",
        "access_token",
        "token",
    ],
)
def test_the_value_of_a_field_with_a_sensitive_name_is_redacted(name: str) -> None:
    redaction = Redaction([])
    assert redaction.redact({name: "anything"}) == {name: REDACTED}
    assert "anything" not in redaction.redact_text(f'{{"{name}": "anything"}}')
    assert "anything" not in redaction.redact_text(f'{{\\"{name}\\":\\"anything\\"}}')
    assert "anything" not in redaction.redact_text(f"{name} = 'anything'")


@pytest.mark.parametrize("name", ["max_tokens", "tokens", "keyboard", "secretary", "name", "key"])
def test_the_value_of_a_field_with_a_similar_but_harmless_name_is_unchanged(name: str) -> None:
    assert Redaction([]).redact({name: "kept"}) == {name: "kept"}
    assert Redaction([]).redact_text(f'{{"{name}": "kept"}}') == f'{{"{name}": "kept"}}'


def test_a_json_schema_with_a_property_named_password_is_unchanged() -> None:
    schema: JsonValue = {"properties": {"password": {"type": "string"}}, "required": ["password"]}
    assert Redaction([]).redact(schema) == schema


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Bearer abcdefgh12345", f"Bearer {REDACTED}"),
        ("authorization: bearer  abcdefgh.x-y_z/+=", f"authorization: bearer {REDACTED}"),
        ("sk-abcdefghijklmnop1234", REDACTED),
        ("ghp_abcdefghijklmnopqrst1", REDACTED),
        ("AKIAIOSFODNN7EXAMPLE", REDACTED),
        ("hf_abcdefghijklmnopqrstu", REDACTED),
        ("xoxb-1234567890-abc", REDACTED),
        ("eyJhbGciOiJI.eyJzdWIiOiIx.c2ln", REDACTED),
        ("a bearer of news", "a bearer of news"),
        ("risk-averse", "risk-averse"),
    ],
)
def test_text_that_looks_like_an_api_key_is_redacted(text: str, expected: str) -> None:
    assert Redaction([]).redact_text(text) == expected


def test_the_oldest_exchanges_are_evicted_first() -> None:
    kept = KeptExchanges(10)
    for number in range(1, 4):
        kept.keep(number, b"12345")
    assert [kept.has(number) for number in (1, 2, 3)] == [False, True, True]
    assert (kept.line(1), kept.line(3)) == (None, b"12345")
    assert kept.reason(1) == "dropped"


def test_an_oversized_exchange_evicts_nothing() -> None:
    kept = KeptExchanges(10)
    kept.keep(1, b"12345")
    kept.keep(2, b"12345678901")
    kept.leave_out(3)
    assert kept.has(1)
    assert kept.reason(2) == kept.reason(3) == "too_large"
    assert kept.reason(4) == "not_understood"


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


def test_a_written_exchange_can_be_read_back(tmp_path: Path) -> None:
    path = tmp_path / "recording.jsonl"
    recording = Recording(path, 100_000, ())
    recording.write(EXCHANGE)
    recording.write(EXCHANGE)
    recording.close()
    assert path.read_bytes().count(b"\n") == 2
    assert list(read_recording(path)) == [EXCHANGE, EXCHANGE]


def test_a_written_exchange_has_its_secrets_redacted(tmp_path: Path) -> None:
    path = tmp_path / "recording.jsonl"
    recording = Recording(path, 100_000, ("canary-1",))
    recording.write(EXCHANGE, "canary-2")
    recording.close()
    assert "canary" not in path.read_text()
    (exchange,) = read_recording(path)
    assert exchange.generations[0][0] == ["text", "Hi, [redacted]."]
    assert exchange.verdict == EXCHANGE.verdict


def test_a_recording_is_readable_only_by_its_owner(tmp_path: Path) -> None:
    path = tmp_path / "recording.jsonl"
    Recording(path, 100_000, ()).close()
    assert path.stat().st_mode & 0o777 == 0o600


def test_exchanges_are_appended_to_a_recording_until_it_has_max_bytes(
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
    (warning,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert "recording.max_bytes" in warning.getMessage()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full device here")
def test_a_write_to_a_full_disk_is_logged_and_raises_no_exception(
    caplog: pytest.LogCaptureFixture,
) -> None:
    recording = Recording(Path("/dev/full"), 100_000, ())
    recording.write(EXCHANGE)
    recording.close()
    assert "No space left" in caplog.text


def test_exchanges_are_written_again_after_an_outage_and_each_outage_is_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Found by the simulation: the log said that the recording had stopped, but it continued.

    The log also did not mention a second outage.
    """
    path, write, is_full = tmp_path / "recording.jsonl", os.write, [True, True, False, True]

    def write_if_possible(file: int, line: bytes) -> int:
        if is_full.pop(0):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(file, line)

    monkeypatch.setattr(os, "write", write_if_possible)
    recording = Recording(path, 1_000_000, ())
    for _ in [*is_full]:
        recording.write(EXCHANGE)
    recording.close()
    assert list(read_recording(path)) == [EXCHANGE]
    message = f"recording: exchanges are not written ({os.strerror(errno.ENOSPC)})"
    assert caplog.messages == [message, message]


def test_a_recording_path_that_cannot_be_written_raises_invalid_configuration(
    tmp_path: Path,
) -> None:
    with pytest.raises(InvalidConfiguration, match=r"recording\.path: cannot write to"):
        Recording(tmp_path / "no" / "folder", 100_000, ())


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("{]", "line 2 does not belong to a recording: the line"),
        ("[]", "line 2 does not belong to a recording"),
        ('{"version": 3}', "version"),
        (json.dumps({**json.loads(msgspec.json.encode(EXCHANGE).decode()), "extra": 1}), "extra"),
    ],
)
def test_an_invalid_line_is_reported_with_its_number(
    tmp_path: Path, line: str, problem: str
) -> None:
    path = tmp_path / "recording.jsonl"
    path.write_text(f"{msgspec.json.encode(EXCHANGE).decode()}\n{line}\n")
    with pytest.raises(InvalidConfiguration, match=problem):
        list(read_recording(path))


def test_lines_of_the_previous_version_can_be_read(tmp_path: Path) -> None:
    line = json.loads(msgspec.json.encode(EXCHANGE).decode())
    assert line.pop("run") is None
    path = tmp_path / "recording.jsonl"
    path.write_text(json.dumps({**line, "version": 1}))
    (exchange,) = read_recording(path)
    assert (exchange.version, exchange.run) == (1, None)
    assert exchange.generations == EXCHANGE.generations


def test_reading_a_missing_recording_raises_invalid_configuration(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfiguration, match="cannot be read"):
        list(read_recording(tmp_path / "nothing"))


def test_a_line_truncated_by_a_full_disk_is_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path, write = tmp_path / "recording.jsonl", os.write
    whole = Recording(path, 1_000_000, ())
    whole.write(EXCHANGE)
    whole.close()
    truncated = Recording(path, 1_000_000, ())
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda file, line: write(file, line[: len(line) // 2]))
        truncated.write(EXCHANGE)
        truncated.close()
    assert list(read_recording(path)) == [EXCHANGE]
    reopened = Recording(path, 1_000_000, ())  # as after a restart
    reopened.write(EXCHANGE)
    reopened.close()
    assert list(read_recording(path)) == [EXCHANGE, EXCHANGE]
    assert "line 2 is incomplete; skipping it" in caplog.text


@pytest.mark.fault("F108")
def test_while_the_disk_is_blocked_write_drops_exchanges_and_does_not_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path, write, disk_continues = tmp_path / "recording.jsonl", os.write, threading.Event()

    def write_late(file: int, line: bytes) -> int:
        disk_continues.wait()
        return write(file, line)

    monkeypatch.setattr(recording_module, "_MOST_UNWRITTEN", 2000)
    recording = Recording(path, 1_000_000, ())
    monkeypatch.setattr(os, "write", write_late)
    for _ in range(9):
        recording.write(EXCHANGE)
    assert not path.read_bytes()
    disk_continues.set()
    recording.close()
    line = len(msgspec.json.encode(EXCHANGE)) + 1
    assert len(list(read_recording(path))) == 2000 // line + 1
    assert caplog.messages == ["recording: skipping exchanges until the disk has caught up"]
    recording.close()  # closing it again has no effect


def test_an_exchange_can_be_read_if_the_line_before_it_was_cut_at_any_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Simulation, seed 105: the next exchange was appended to an incomplete line."""
    path, write = tmp_path / "recording.jsonl", os.write
    exchange = msgspec.structs.replace(EXCHANGE, answer=RecordedAnswer(text='fr\u00fch \u96ea "\n'))
    first = Recording(path, 10_000_000, ())
    first.write(exchange)
    first.close()
    size = path.stat().st_size
    cuts = chain.from_iterable((cut, None) for cut in range(1, size))
    monkeypatch.setattr(os, "write", lambda file, line: write(file, line[: next(cuts)]))
    recording = Recording(path, 10_000_000, ())
    for _ in range(2 * (size - 1)):
        recording.write(exchange)
    recording.close()
    whole = [*read_recording(path)]
    assert len(whole) >= size
    assert {*map(msgspec.json.encode, whole)} == {msgspec.json.encode(exchange)}


def test_empty_lines_of_a_recording_are_skipped(tmp_path: Path) -> None:
    path = tmp_path / "recording.jsonl"
    path.write_text(f"\n{msgspec.json.encode(EXCHANGE).decode()}\n\n")
    assert list(read_recording(path)) == [EXCHANGE]


def test_an_exchange_in_memory_equals_the_redacted_line_of_the_file(tmp_path: Path) -> None:
    path, kept = tmp_path / "recording.jsonl", KeptExchanges(100_000)
    recording = Recording(path, 100_000, ("canary-1",), kept)
    recording.write(EXCHANGE, "canary-2", number=7)
    recording.leave_out(8)
    recording.close()
    assert kept.line(7) == path.read_bytes()
    assert b"canary" not in path.read_bytes()
    assert kept.reason(8) == "too_large"


def test_exchanges_are_stored_only_in_memory_if_no_path_is_given() -> None:
    kept = KeptExchanges(100_000)
    recording = Recording(None, 0, (), kept)
    recording.write(EXCHANGE, number=1)
    recording.close()
    assert kept.has(1)
    disabled = Recording(None, 0, ())
    disabled.write(EXCHANGE)
    disabled.leave_out(1)
