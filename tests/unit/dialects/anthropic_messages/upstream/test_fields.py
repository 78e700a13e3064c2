import re
from pathlib import Path

import pytest
from msgspec.structs import replace

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.requests import Parsing, ThinkingOptions, UpstreamRequest
from proxy.conversation.tools import NamedTool, ToolChoice, ToolUse
from proxy.dialects.anthropic_messages.upstream.fields import (
    FIELDS,
    ModelLimits,
    body_fields,
    encode_choice,
    is_forced,
)
from proxy.dialects.field_table import Field, Handling
from proxy.dialects.openai_chat.decode import decode_request
from proxy.dialects.openai_chat.schema import ChatCompletionRequest
from proxy.errors import InvalidRequest
from tests.fakes.upstream_requests import upstream_request as offering

SCHEMA: JsonObject = {"type": "object", "required": ["name"]}
FORM: JsonObject = {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}
WRITTEN_FORM: JsonObject = {"format": {"type": "json_schema", "schema": SCHEMA}}
TOOL: JsonObject = {"type": "function", "function": {"name": "f"}}
DISABLED: JsonObject = {"type": "disabled"}
ALONE: JsonObject = {"disable_parallel_tool_use": True}


def upstream_request(**fields: JsonValue) -> UpstreamRequest:
    asked: JsonObject = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], **fields}
    request = decode_request(json.dump(asked))
    return UpstreamRequest(request, request.messages, request.tools, request.tool_choice)


def written(**fields: JsonValue) -> JsonObject:
    return body_fields(upstream_request(**fields))


def refused(asked: UpstreamRequest) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as raised:
        body_fields(asked)
    return raised.value


@pytest.mark.parametrize("name", ["temperature", "top_p", "top_k"])
def test_parameters_of_sampling_are_carried(name: str) -> None:
    assert written(**{name: 0.5}) == {name: 0.5}


@pytest.mark.parametrize("stop", ["a", ["a"]])
def test_stop_strings_are_a_list(stop: JsonValue) -> None:
    assert written(stop=stop) == {"stop_sequences": ["a"]}


@pytest.mark.parametrize(
    ("fields", "members"),
    [
        ({"reasoning_effort": "high"}, {"output_config": {"effort": "high"}}),
        ({"reasoning_effort": "minimal"}, {"output_config": {"effort": "low"}}),
        ({"reasoning_effort": "none"}, {"thinking": DISABLED}),
        ({"chat_template_kwargs": {"enable_thinking": False}}, {"thinking": DISABLED}),
        ({"chat_template_kwargs": {"enable_thinking": True}}, {"thinking": {"type": "adaptive"}}),
        ({"thinking": {"type": "enabled", "budget_tokens": 9}},) * 2,
        (
            {"reasoning_effort": "none", "chat_template_kwargs": {"enable_thinking": False}},
            {"thinking": DISABLED},
        ),
    ],
)
def test_how_much_is_thought_has_other_words(fields: JsonObject, members: JsonObject) -> None:
    assert written(**fields) == members


@pytest.mark.parametrize(
    ("thinking", "members"),
    [
        (ThinkingOptions(is_on=False), {"thinking": DISABLED}),
        (ThinkingOptions(is_on=True), {"thinking": {"type": "adaptive"}}),
        (
            ThinkingOptions(is_on=True, budget=1024),
            {"thinking": {"type": "enabled", "budget_tokens": 1024}},
        ),
        (ThinkingOptions(effort="max"), {"output_config": {"effort": "max"}}),
        (ThinkingOptions(effort="minimal"), {"output_config": {"effort": "low"}}),
    ],
)
def test_what_no_field_says_of_thoughts_is_said_as_the_api_knows_it(
    thinking: ThinkingOptions, members: JsonObject
) -> None:
    asked = upstream_request()
    asked = replace(asked, request=replace(asked.request, thinking=thinking))
    assert body_fields(asked) == members


@pytest.mark.parametrize("kwargs", [{"a": 1}, {"enable_thinking": 1}, {}, "x"])
def test_other_variables_of_templates_mean_nothing_there(kwargs: JsonValue) -> None:
    assert refused(upstream_request(chat_template_kwargs=kwargs)).param == "chat_template_kwargs"


def test_the_same_thing_asked_for_in_two_ways_is_refused() -> None:
    error = refused(upstream_request(reasoning_effort="none", thinking={"type": "adaptive"}))
    assert error.param == "thinking"
    assert "twice" in error.problem


@pytest.mark.parametrize(
    ("form", "output"),
    [
        ({"type": "text"}, None),
        (FORM, WRITTEN_FORM),
        ({"type": "json_object", "schema": SCHEMA}, WRITTEN_FORM),
    ],
)
def test_the_form_of_an_answer_is_its_schema(form: JsonObject, output: JsonObject | None) -> None:
    assert written(response_format=form).get("output_config") == output
    both = written(response_format=form, reasoning_effort="low").get("output_config")
    assert both == {**(output or {}), "effort": "low"}


def test_a_form_without_a_schema_is_refused() -> None:
    error = refused(upstream_request(response_format={"type": "json_object"}))
    assert error.param == "response_format"
    assert "json_schema" in error.problem


def test_a_form_that_is_checked_here_is_not_asked_for_there() -> None:
    asked = replace(upstream_request(response_format=FORM, tools=[TOOL]), parsing=Parsing.OURS)
    assert "output_config" not in body_fields(asked)
    omitted = replace(upstream_request(response_format=FORM), omits=frozenset({"response_format"}))
    assert body_fields(omitted) == {}


KEPT_HERE = (Handling.ENFORCED, Handling.IGNORED)


@pytest.mark.parametrize(
    "name", [name for name, row in FIELDS.items() if row.handling in KEPT_HERE]
)
def test_what_is_kept_here_or_needless_does_not_go_out(name: str) -> None:
    asked = upstream_request()
    fields = {**asked.request.fields, name: b'"x"'}
    assert body_fields(replace(asked, request=replace(asked.request, fields=fields))) == {}


@pytest.mark.parametrize(
    ("name", "row"),
    [(name, row) for name, row in FIELDS.items() if row.handling is Handling.REFUSED],
)
def test_what_it_cannot_do_is_refused_unless_the_value_asks_for_nothing(
    name: str, row: Field
) -> None:
    asked = upstream_request()

    def with_value(raw: bytes) -> UpstreamRequest:
        fields = {**asked.request.fields, name: raw}
        return replace(asked, request=replace(asked.request, fields=fields))

    for harmless in (*row.harmless, None):
        assert body_fields(with_value(json.dump(harmless))) == {}
    error = refused(with_value(b'"something"'))
    assert (error.param, error.problem) == (name, row.note)


def test_a_field_that_nobody_knows_is_refused_by_name() -> None:
    assert refused(upstream_request(mirostat=2)).param == "mirostat"


def test_whoever_calls_tools_has_the_prompt_cached() -> None:
    assert written() == {}
    assert written(tools=[TOOL]) == {"cache_control": {"type": "ephemeral"}}
    assert written(tools=[TOOL], cache_control=None) == {}
    long: JsonObject = {"type": "ephemeral", "ttl": "1h"}
    assert written(tools=[TOOL], cache_control=long) == {"cache_control": long}
    assert written(cache_control=long) == {"cache_control": long}


def test_a_forced_call_has_no_thoughts_before_it() -> None:
    thinking: JsonObject = {"type": "adaptive"}
    free = written(tools=[TOOL], thinking=thinking)
    assert free["thinking"] == thinking
    forced = written(tools=[TOOL], thinking=thinking, tool_choice="required")
    assert "thinking" not in forced
    assert forced["tool_choice"] == {"type": "any"}
    off = written(tools=[TOOL], thinking=DISABLED, tool_choice="required")
    assert off["thinking"] == DISABLED
    none = replace(upstream_request(tools=[TOOL], thinking=thinking), tool_choice=ToolUse.NONE)
    assert body_fields(none)["thinking"] == thinking


@pytest.mark.parametrize(
    ("terms", "wanted", "limit"),
    [
        (ModelLimits("m"), None, 4096),
        (ModelLimits("m"), 9, 9),
        (ModelLimits("m"), 0, 1),
        (ModelLimits("m", window=8192), None, 4096),
        (ModelLimits("m", window=200_000), None, 100_000),
        (ModelLimits("m", 64_000, 200_000), None, 64_000),
        (ModelLimits("m", 64_000, 200_000), 100_000, 64_000),
        (ModelLimits("m", 64_000, 200_000), 9, 9),
    ],
)
def test_an_answer_always_has_a_limit(terms: ModelLimits, wanted: int | None, limit: int) -> None:
    assert terms.limit(wanted) == limit


def test_stops_of_our_own_join_those_of_the_client() -> None:
    asked = replace(upstream_request(stop="a"), stops=("x",))
    assert body_fields(asked) == {"stop_sequences": ["a", "x"]}


def test_the_table_names_every_field_of_a_chat_completion_request() -> None:
    assert set(ChatCompletionRequest.model_fields) <= set(FIELDS)


def test_the_guide_tells_what_becomes_of_every_field() -> None:
    guide = Path(__file__).parents[5] / "docs" / "guides" / "engines.md"
    table = guide.read_text(encoding="utf-8").partition("| field |")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| (`.+?) \|", table, re.MULTILINE)
    named = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    assert set(named) == {*FIELDS, "enable_thinking"}
    assert len(named) == len(set(named))


@pytest.mark.parametrize(
    "name", [name for name, row in FIELDS.items() if row.handling is Handling.REFUSED]
)
def test_every_refusal_says_what_to_do_instead(name: str) -> None:
    row = FIELDS[name]
    assert row.note.endswith(".")


@pytest.mark.parametrize(
    ("choice", "written"),
    [
        (ToolUse.AUTO, None),
        (ToolUse.NONE, {"type": "none"}),
        (ToolUse.REQUIRED, {"type": "any"}),
        (NamedTool("get_weather"), {"type": "tool", "name": "get_weather"}),
    ],
)
def test_a_choice_is_said_in_other_words(choice: ToolChoice, written: JsonObject | None) -> None:
    asked = offering(tool_choice=choice)
    assert encode_choice(asked) == written
    singly = replace(asked, calls_singly=True)
    alone = {} if choice is ToolUse.NONE else ALONE
    assert encode_choice(singly) == {**(written or {"type": "auto"}), **alone}
    single = replace(asked, request=replace(asked.request, parallel_tool_calls=False))
    assert encode_choice(single) == encode_choice(singly)


def test_without_tools_there_is_no_choice() -> None:
    assert encode_choice(offering(has_tools=False, tool_choice=ToolUse.NONE)) is None


def test_raw_text_is_had_by_forbidding_calls() -> None:
    assert encode_choice(offering(parsing=Parsing.OURS)) == {"type": "none"}


def test_without_a_grammar_a_call_is_forced() -> None:
    asked = offering(parsing=Parsing.OURS, schema=SCHEMA)
    assert encode_choice(asked) == {"type": "any", **ALONE}
    named = offering(parsing=Parsing.OURS, schema=SCHEMA, tool_choice=NamedTool("get_weather"))
    assert encode_choice(named) == {"type": "tool", "name": "get_weather", **ALONE}


@pytest.mark.parametrize(
    ("kind", "is_so"), [("any", True), ("tool", True), ("auto", False), ("none", False)]
)
def test_any_and_a_name_force_a_call(kind: str, is_so: bool) -> None:
    assert is_forced({"type": kind}) is is_so
    assert not is_forced(None)
