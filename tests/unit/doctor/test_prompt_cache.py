"""`temper doctor --cache` without a server; `tests/acceptance/test_rereads.py` uses a server."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from proxy.context.prefix import Causer, Reread
from proxy.conversation.json import JsonObject, JsonValue
from proxy.doctor.prompt_cache import Conversation, document, examine_cache, summary, tables
from proxy.errors import InvalidConfiguration
from proxy.observability.recording import RecordedExchange, RecordedReading, Recording
from proxy.settings import Settings
from tests.fakes.histories import said
from tests.fakes.invoked import document as printed
from tests.fakes.invoked import temper
from tests.fakes.recorded import exchange

SYSTEM, QUESTION = said("system", "Be brief."), said("user", "Hi")
LATER = (said("assistant", "Hello."), said("user", "How are you?"))


def record_exchange(
    *messages: JsonObject, tokens: int = 1000, cached: int | None = 0, reread: Reread | None = None
) -> RecordedExchange:
    listed: list[JsonValue] = [*messages]
    reading = RecordedReading(tokens=tokens, cached=cached, seconds=2.0, reread=reread)
    return replace(exchange(request={"model": "m", "messages": listed}), reading=reading)


def write_recording(folder: Path, exchanges: Sequence[RecordedExchange]) -> Path:
    path = folder / "recording.jsonl"
    recording = Recording(path, 1_000_000, ())
    for each in exchanges:
        recording.write(each)
    recording.close()
    return path


async def examine_recording(folder: Path, *exchanges: RecordedExchange) -> list[Conversation]:
    return await examine_cache(write_recording(folder, exchanges), Settings())


async def test_recorded_requests_are_grouped_by_conversation_in_order(tmp_path: Path) -> None:
    other = said("user", "Another question")
    conversations = await examine_recording(
        tmp_path,
        record_exchange(SYSTEM, QUESTION),
        record_exchange(SYSTEM, other),
        record_exchange(SYSTEM, QUESTION, *LATER, tokens=1100, cached=990),
    )
    titles = [(conversation.title, len(conversation.rows)) for conversation in conversations]
    assert titles == [("Hi", 2), ("Another question", 1)]
    last = conversations[0].rows[1]
    assert (last.tokens, last.cached, last.read, last.seconds) == (1100, 990, 110, 2.0)
    assert (last.section, last.reason, last.offset) == ("", "", None)
    assert summary(conversations) == "None of 3 prompts was read again."


async def test_the_first_difference_and_the_recorded_cause_are_shown_for_a_prompt_read_again(
    tmp_path: Path,
) -> None:
    changed = said("system", "Be kind.")
    reason = "the system prompt changed at character 3"
    conversations = await examine_recording(
        tmp_path,
        record_exchange(SYSTEM, QUESTION),
        record_exchange(changed, QUESTION, cached=4, reread=Reread(1000, 4, 2.0, "client", reason)),
    )
    (_, row) = conversations[0].rows
    assert (row.section, row.causer, row.reason) == ("the system prompt", "client", reason)
    sentence = summary(conversations)
    assert sentence.startswith("1 prompt of 2 read again (996 tokens, 2.0 s). Main cause")
    assert "Keep the system prompt the same" in sentence
    (table,) = tables(conversations)
    assert table.row_count == 2


@pytest.mark.parametrize(
    ("causer", "remedy"),
    [("temper", "larger window"), ("template", "thinking off"), ("engine", "a slot for each")],
)
async def test_the_summary_says_what_to_do_for_each_cause(
    tmp_path: Path, causer: Causer, remedy: str
) -> None:
    reread = Reread(1000, 4, 2.0, causer, "of this")
    conversations = await examine_recording(
        tmp_path,
        record_exchange(SYSTEM, QUESTION),
        record_exchange(SYSTEM, QUESTION, *LATER, cached=4, reread=reread),
    )
    assert remedy in summary(conversations)


async def test_the_changed_message_is_shown_for_recordings_without_cached_tokens(
    tmp_path: Path,
) -> None:
    before, now = (
        replace(record_exchange(SYSTEM, QUESTION, said("assistant", text), QUESTION), reading=None)
        for text in ("one", "two")
    )
    conversations = await examine_recording(tmp_path, before, now)
    row = conversations[0].rows[1]
    assert row.reason == "message 2 (assistant) was rewritten"
    sentence = summary(conversations)
    assert "Append messages" in sentence
    assert "does not report cached tokens" in sentence


async def test_a_recording_without_exchanges_raises_invalid_configuration(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfiguration, match="contains no exchange"):
        await examine_recording(tmp_path)


def test_temper_doctor_prints_tables_or_json_if_the_flag_cache_is_set(tmp_path: Path) -> None:
    path = write_recording(
        tmp_path,
        [record_exchange(SYSTEM, QUESTION), record_exchange(SYSTEM, QUESTION, *LATER, cached=990)],
    )
    output = temper("doctor", "--cache", str(path))
    assert output.exit_code == 0
    assert "first difference" in output.stdout
    assert "None of 2 prompts was read again." in output.stdout
    report = printed(temper("doctor", "--cache", str(path), "--json"))
    assert report["summary"] == "None of 2 prompts was read again."
    assert {"summary", "conversations"} == {*report}
    assert document([])["conversations"] == []
