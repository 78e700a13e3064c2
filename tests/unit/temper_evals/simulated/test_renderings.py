import random

import pytest

from proxy.conversation import json
from temper_evals.scenarios.catalogue import TOOLS
from temper_evals.scenarios.scenario import PlannedCall
from temper_evals.scenarios.suite import FAMILIES, HELD_OUT
from temper_evals.scenarios.task import PlannedTask
from temper_evals.scenarios.worlds import objection, schema_of
from temper_evals.simulated import held_out_edits, profiles, renderings
from temper_evals.simulated.model import SimulatedModel
from temper_evals.simulated.profiles import Flaw, ModelProfile, Reaction
from temper_evals.simulated.request import read_request

CALLS = [
    FAMILIES[name](seed).calls[0] for name in ("single", "schema", "verbatim") for seed in range(12)
]
CALL_FORMATS = [
    call_format
    for held_out in (False, True)
    for call_format in renderings.renderings(held_out=held_out)["foreign"]
]
HELD_OUT_TASKS = [HELD_OUT[name](index) for name in HELD_OUT for index in range(4)]
IDS = [f"{call.name}-{index}" for index, call in enumerate(CALLS)]


def test_every_rendering_in_the_file_has_a_source() -> None:
    text = (profiles.folder() / "renderings.jsonl").read_text(encoding="utf-8")
    rows = [json.parse(line) for line in text.splitlines()]
    assert len(rows) > 130
    assert all(isinstance(row, dict) and row.get("source") for row in rows)


def test_at_least_a_third_of_each_kind_of_rendering_is_held_out() -> None:
    first, second = renderings.renderings(), renderings.renderings(held_out=True)
    assert {*first} == {*second}
    for kind in first:
        assert len(second[kind]) >= (len(first[kind]) + len(second[kind])) / 3
        assert not {*first[kind]} & {*second[kind]}


@pytest.mark.parametrize("task", HELD_OUT_TASKS, ids=[held_out.name for held_out in HELD_OUT_TASKS])
def test_held_out_defects_make_a_call_invalid_but_a_wrong_value_does_not(task: PlannedTask) -> None:
    tools = task.setting.tools
    for index, call in enumerate(task.calls):
        schema = schema_of(tools, call.name)
        assert schema is not None
        for seed in range(10):
            draw = random.Random(f"{index} {seed}")
            with pytest.raises(ValueError, match=r".+"):
                json.parse(renderings.broken_json(call, draw, held_out=True))
            name = renderings.wrong_name(call, draw, held_out=True)
            assert objection(tools, name, call.arguments) is not None
            mistyped, _ = renderings.wrong_type(call, schema, draw, held_out=True)
            assert objection(tools, call.name, mistyped) is not None
            other = renderings.wrong_value(call, schema, draw)
            assert objection(tools, call.name, other) is None
            assert other != call.arguments


@pytest.mark.parametrize("edit", sorted(held_out_edits.TYPES))
def test_an_edit_of_types_without_a_fitting_argument_returns_none(edit: str) -> None:
    assert held_out_edits.TYPES[edit]({}, {}) is None


def test_several_calls_are_written_in_one_block_if_the_format_has_blocks() -> None:
    calls = [PlannedCall("a", {"b": 1}), PlannedCall("c", {"d": "e"})]
    texts = {renderings.foreign(calls, random.Random(n), held_out=True) for n in range(400)}
    joined = [
        '[{"name":"a","arguments":{"b":1}}, {"name":"c","arguments":{"d":"e"}}]',
        "<|tool_call_start|>[a(b=1), c(d='e')]<|tool_call_end|>",
        '<minimax:tool_call>\n  <invoke name="a">\n    <parameter name="b">1</parameter>\n'
        '  </invoke>\n  <invoke name="c">\n    <parameter name="d">e</parameter>\n'
        "  </invoke>\n</minimax:tool_call>",
        'a{"b":1}</function>\nc{"d":"e"}</function>',
    ]
    assert {*joined} <= texts
    marks = ("{each}", "{between}", "{end}", "{each_argument}", "{end_argument}")
    assert not any(mark in text for text in texts for mark in marks)


def test_held_out_texts_are_written_only_in_tasks_of_held_out_families() -> None:
    second = renderings.renderings(held_out=True)["prose"]
    shown = [text.replace("{name}", "") for text in second if "{name}" not in text]
    profile = ModelProfile("prose", "", {Flaw.PROSE_FIRST: 1.0}, dict.fromkeys(Reaction, 0.0))
    for families, expected in ((HELD_OUT, True), (FAMILIES, False)):
        tasks = [families[name](index) for name in families for index in range(25)]
        requests = [read_request(task.request(0)) for task in tasks if task.steps]
        texts = {
            SimulatedModel(profile).reply(request).text
            for request in requests
            if request is not None
        }
        assert bool(texts & {*shown}) is expected


@pytest.mark.parametrize("call", CALLS, ids=IDS)
def test_defects_make_a_call_invalid_but_a_wrong_value_does_not(
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
        incomplete, name = renderings.missing(call, draw)
        assert name in call.arguments
        if name != "tags":  # the only optional argument of these calls
            assert objection(tools, call.name, incomplete) is not None
        assert objection(tools, call.name, renderings.wrong_type(call, schema, draw)[0]) is not None
        other = renderings.wrong_value(call, schema, draw)
        assert objection(tools, call.name, other) is None


@pytest.mark.parametrize("call_format", CALL_FORMATS)
def test_a_call_in_a_foreign_format_contains_its_name_and_every_value(call_format: str) -> None:
    call = PlannedCall("send_sms", {"number": "+999 1", "text": "{name} {call}"})
    text = renderings.as_text(call, call_format)
    assert "send_sms" in text
    assert "+999 1" in text
    assert "{name} {call}" in text
    marks = ("{arguments}", "{pairs}", "{parameters}", "{dsml}", "{braces}", "{key}", "{value}")
    assert not any(mark in text for mark in marks)


def test_a_format_may_contain_the_type_of_each_argument() -> None:
    call = PlannedCall(
        "a", {"b": "{name}", "c": [1], "d": None, "e": True, "f": 2, "g": {"h": 1.5}}
    )
    text = renderings.as_text(call, "{name}({each_argument}{key}:{type}={value};{end_argument})")
    assert text == (
        'a(b:string={name};c:array=[1];d:null=null;e:boolean=true;f:integer=2;g:object={"h":1.5};)'
    )


def test_the_braces_format_has_unquoted_keys_and_strings_in_special_quotes() -> None:
    call = PlannedCall("a", {"b": "x", "c": [{"d": "y", "e": False}, 2.5], "f": None})
    text = renderings.as_text(call, "call:{name}{braces}")
    assert text == 'call:a{b:<|"|>x<|"|>,c:[{d:<|"|>y<|"|>,e:false},2.5],f:null}'


def test_prose_sometimes_contains_the_name_of_the_tool() -> None:
    call = PlannedCall("send_sms", {})
    texts = {renderings.prose("prose", call, random.Random(seed)) for seed in range(200)}
    assert any("send_sms" in text for text in texts)
    assert not any("{name}" in text for text in texts)
    assert renderings.missing(call, random.Random(1)) == ({}, "")
