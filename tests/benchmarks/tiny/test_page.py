from pathlib import Path

import pytest

from benchmarks.tiny import page as pages
from benchmarks.tiny.page import LADDER, measure, page
from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.errors import InvalidConfiguration
from temper_evals.arms import TINY_ARMS
from temper_evals.records import Records, RunRecord
from temper_evals.tiny_model import shipped
from temper_evals.tiny_suite import tiny_suite

WRONG = ("direct", "temper-off", "temper-accept")


def record(bed: str, arm: str, name: str, *, right: bool) -> RunRecord:
    family = name.partition("-")[0]
    return RunRecord(bed, arm, name, 0, family, right=right, ending="answered", digest=arm)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    records = Records(tmp_path, {"hash": "abc-def"})
    for bed in ("tiny", "tiny-mute"):
        for arm in TINY_ARMS:
            for one in tiny_suite("quick"):
                records.add(record(bed, arm, one.name, right=arm not in WRONG))
    records.close()
    return tmp_path


def test_every_number_is_of_the_records_or_of_the_facts(folder: Path) -> None:
    told = page(folder, "quick")
    assert f"| tiny | direct | {len(tiny_suite('quick'))} | 0.0 |" in told
    assert f"{shipped.facts()['tokens']:,} tokens" in told
    assert "Protocol `abc-def`" in told
    assert "| tiny | temper | 12/12 |" in told


def test_promises_are_held_to_what_was_measured(folder: Path) -> None:
    told = page(folder, "quick")
    assert "helps and harms nobody | 0, 0 | met |" in told
    assert "helps 3 times as often as it harms | 84, 0 | met |" in told
    assert "98 % of the tasks with one call that `tiny` gets right | 0 of 0 | met |" in told


def test_the_ladder_is_shown_as_it_was_measured(folder: Path) -> None:
    first = json.parse(LADDER.read_bytes())
    assert isinstance(first, list)
    lines: list[JsonObject] = [one for one in first if isinstance(one, dict)]
    told = page(folder, "quick")
    for one in lines:
        assert f"{one['right']}/{one['runs']}" in told


async def test_records_of_another_model_are_not_carried_on(folder: Path) -> None:
    told: list[str] = []
    with pytest.raises(InvalidConfiguration, match="was made by protocol abc-def"):
        await measure(folder, "quick", told.append)
    assert told == []


def test_other_models_are_shown_as_they_were_kept_and_replace_what_stood_there(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts: JsonObject = {
        **{"parameters": 1234, "device": "a card", "checked": {}},
        "shape": {"width": 64, "layers": 2, "vocabulary": 300},
        "log": [{"tokens": 5000, "seconds": 60, "seen": 0.5, "unseen": 0.25}],
    }
    model = tmp_path / "larger.gguf"
    model.with_suffix(".json").write_bytes(json.dump(facts))
    row: JsonObject = {"runs": 4, "damage": 0, "generations": 1.0, "families": {"seen two": [1, 4]}}
    direct: JsonObject = {"arm": "direct", "right": 1, "helped": 0, "harmed": 0, **row}
    temper: JsonObject = {"arm": "temper", "right": 3, "helped": 2, "harmed": 0, **row}
    rates: JsonObject = dict.fromkeys(pages.COUNTED, 7)
    monkeypatch.setattr(pages, "LARGER", tmp_path / "kept.json")
    monkeypatch.setattr(pages, "UNTALKING", tmp_path / "untalking.json")
    assert pages.others() == ""
    pages.keep_untalking(folder)
    kept: JsonObject = {"arms": [direct, temper], "rates": rates, "tuning": ["respond: off"]}
    pages.keep_larger(model, kept, 3)
    told = pages.with_others("# The tiny model\n")
    assert "| temper | 4 | 75.0 | 2 | 0 | 0 | 1.00 |" in told
    assert "50.0 % with seen tools, 25.0 % with unseen tools" in told
    assert "- respond: off" in told
    assert "| tiny | temper-respond | 84/84 | 84 | 0 |" in told
    assert pages.with_others(told) == told
