from pathlib import Path

import msgspec
import pytest
from msgspec import structs

from proxy.conversation.json import JsonObject
from proxy.errors import InvalidConfiguration
from proxy.observability.recording import RecordedAnswer, RecordedExchange, RecordedVerdict
from temper_evals.traffic import RuleEffect, try_rules
from tests.fakes.invoked import document, temper
from tests.fakes.recorded import REQUEST, exchange

TOOL_CALL: JsonObject = {"id": "a", "type": "function"}
TOOL_CALL["function"] = {"name": "get_weather", "arguments": '{"city": "Paris"}'}
MESSAGES = REQUEST["messages"]
assert isinstance(MESSAGES, list)
REQUEST_AFTER_A_TOOL_ERROR: JsonObject = {
    **REQUEST,
    "messages": [
        *MESSAGES,
        {"role": "assistant", "content": None, "tool_calls": [TOOL_CALL]},
        {"role": "tool", "tool_call_id": "a", "content": '{"error": "no such city"}'},
    ],
}


def gave_up() -> RecordedExchange:
    text = "I could not find it."
    failed = exchange(
        (["text", text], ["finished", "stop"]),
        answer=RecordedAnswer(text=text, finish_reason="stop"),
        verdict=RecordedVerdict(outcome="clean", attempts=(("as_asked", None),), repairs=""),
        request=REQUEST_AFTER_A_TOOL_ERROR,
    )
    # the text policy RESPOND would make Temper request another reply, so it is removed
    return structs.replace(
        failed, id="end", policy=structs.replace(failed.policy, text_policy=None)
    )


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    path = tmp_path / "traffic.jsonl"
    path.write_bytes(b"\n".join(map(msgspec.json.encode, (exchange(), gave_up()))) + b"\n")
    return path


def changed(effects: list[RuleEffect]) -> dict[str, list[str]]:
    return {effect.rule.name: [change.id for change in effect.changed] for effect in effects}


def test_try_rules_lists_for_each_rule_the_exchanges_with_another_result(recording: Path) -> None:
    effects = try_rules(recording)
    changes = changed(effects)
    assert changes["without rescue"] == ["r"]
    assert changes["without repair"] == changes["without loops"] == []
    assert changes["close_out structural"] == changes["close_out always"] == ["end"]
    counts = {effect.rule.name: effect.count for effect in effects}
    assert counts["without rescue"] == counts["close_out always"] == 2
    assert counts["close_out off"] == 0  # both exchanges were recorded without close-out


def test_eval_traffic_prints_the_exchanges_that_a_rule_changes(recording: Path) -> None:
    output = temper("eval", "traffic", str(recording)).stdout
    assert "without rescue: 1 of 2 exchanges are not the same\n    r  outcome: " in output
    assert "asks again" in output
    listed = document(temper("eval", "traffic", str(recording), "--json"))["rules"]
    assert isinstance(listed, list)
    assert len(listed) == len(try_rules(recording))


def test_an_exchange_whose_replay_differs_without_any_rule_is_excluded(recording: Path) -> None:
    other = structs.replace(exchange(), verdict=gave_up().verdict)
    recording.write_bytes(msgspec.json.encode(other) + b"\n")
    assert {effect.count for effect in try_rules(recording)} == {0}


def test_an_invalid_recording_raises_invalid_configuration(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("{}\n", encoding="utf-8")
    with pytest.raises(InvalidConfiguration):
        try_rules(tmp_path / "other")
