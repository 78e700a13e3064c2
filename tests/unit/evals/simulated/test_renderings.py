import random

import pytest

from proxy.conversation import json
from proxy.evals.scenarios.catalogue import TOOLS
from proxy.evals.scenarios.scenario import PlannedCall
from proxy.evals.scenarios.suite import FAMILIES
from proxy.evals.scenarios.worlds import objection, schema_of
from proxy.evals.simulated import profiles, renderings

CALLS = [
    FAMILIES[name](seed).calls[0] for name in ("single", "schema", "verbatim") for seed in range(12)
]
IDS = [f"{one.name}-{place}" for place, one in enumerate(CALLS)]


def test_every_rendering_has_its_source() -> None:
    text = (profiles.folder() / "renderings.jsonl").read_text(encoding="utf-8")
    rows = [json.parse(line) for line in text.splitlines()]
    assert len(rows) > 40
    assert all(isinstance(one, dict) and one.get("source") for one in rows)


@pytest.mark.parametrize("call", CALLS, ids=IDS)
def test_what_is_broken_is_no_valid_call_and_what_is_wrong_in_value_is_one(
    call: PlannedCall,
) -> None:
    tools = (TOOLS[call.name],)
    schema = schema_of(tools, call.name)
    assert schema is not None
    for seed in range(20):
        draw = random.Random(seed)
        with pytest.raises(ValueError, match=r".+"):
            json.parse(renderings.broken_json(call, draw))
        assert objection(tools, renderings.wrong_name(call, draw), call.arguments) is not None
        less, name = renderings.missing(call, draw)
        assert name in call.arguments
        if name != "tags":
            assert objection(tools, call.name, less) is not None
        assert objection(tools, call.name, renderings.wrong_type(call, schema, draw)[0]) is not None
        other = renderings.wrong_value(call, schema, draw)
        assert objection(tools, call.name, other) is None


@pytest.mark.parametrize("form", renderings.renderings()["foreign"])
def test_a_call_in_a_foreign_syntax_has_its_name_and_every_value(form: str) -> None:
    call = PlannedCall("send_sms", {"number": "+999 1", "text": "{name} {call}"})
    text = renderings.as_text(call, form)
    assert "send_sms" in text
    assert "+999 1" in text
    assert "{name} {call}" in text
    assert "{arguments}" not in text


def test_prose_may_name_the_tool() -> None:
    call = PlannedCall("send_sms", {})
    texts = {renderings.prose("prose", call, random.Random(seed)) for seed in range(200)}
    assert any("send_sms" in one for one in texts)
    assert not any("{name}" in one for one in texts)
    assert renderings.missing(call, random.Random(1)) == ({}, "")
