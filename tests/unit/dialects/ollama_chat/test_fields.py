import re
from pathlib import Path

import pytest
from msgspec.structs import replace

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.requests import UNSAID, LoadOptions, ThinkingOptions, UpstreamRequest
from proxy.dialects.field_table import CARRIED, Handling
from proxy.dialects.ollama_chat.fields import FIELDS, OPTIONS, ModelSettings, body_fields
from proxy.dialects.openai_chat.decode import decode_request
from proxy.dialects.openai_chat.schema import ChatCompletionRequest
from proxy.errors import InvalidRequest

TERMS = ModelSettings("m")
SCHEMA: JsonObject = {"type": "object", "required": ["name"]}
FORM: JsonObject = {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}
BOUNDLESS: JsonObject = {"type": "json_schema", "json_schema": {"name": "x", "schema": True}}


def upstream_request(**fields: JsonValue) -> UpstreamRequest:
    asked: JsonObject = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], **fields}
    request = decode_request(json.dump(asked))
    return UpstreamRequest(request, request.messages, request.tools, request.tool_choice)


def written(terms: ModelSettings = TERMS, /, **fields: JsonValue) -> JsonObject:
    return body_fields(upstream_request(**fields), terms)


@pytest.mark.parametrize(
    ("field", "value", "option"),
    [
        ("temperature", 0.5, "temperature"),
        ("top_p", 0.9, "top_p"),
        ("top_k", 20, "top_k"),
        ("min_p", 0.05, "min_p"),
        ("typical_p", 0.9, "typical_p"),
        ("seed", 7, "seed"),
        ("presence_penalty", 1.0, "presence_penalty"),
        ("frequency_penalty", 1.0, "frequency_penalty"),
        ("repeat_penalty", 1.1, "repeat_penalty"),
        ("repetition_penalty", 1.1, "repeat_penalty"),
        ("repeat_last_n", 64, "repeat_last_n"),
        ("max_tokens", 9, "num_predict"),
        ("max_completion_tokens", 9, "num_predict"),
        ("stop", ["a", "b"], "stop"),
    ],
)
def test_parameters_of_sampling_become_options(field: str, value: JsonValue, option: str) -> None:
    assert written(**{field: value}) == {"options": {option: value}}


def test_a_single_stop_string_becomes_a_list() -> None:
    assert written(stop="a") == {"options": {"stop": ["a"]}}


@pytest.mark.parametrize(
    ("wanted", "form"),
    [
        ({"type": "text"}, None),
        ({"type": "json_object"}, "json"),
        ({"type": "json_object", "schema": SCHEMA}, SCHEMA),
        (FORM, SCHEMA),
        (BOUNDLESS, "json"),
    ],
)
def test_the_form_of_the_answer_becomes_the_format(wanted: JsonValue, form: JsonValue) -> None:
    assert written(response_format=wanted) == ({} if form is None else {"format": form})


@pytest.mark.parametrize(
    ("field", "value", "think"),
    [
        ("reasoning_effort", "high", "high"),
        ("reasoning_effort", "minimal", "low"),
        ("reasoning_effort", "none", False),
        ("think", True, True),
        ("think", "low", "low"),
        ("chat_template_kwargs", {"enable_thinking": False}, False),
    ],
)
def test_every_way_of_asking_for_thoughts_becomes_think(
    field: str, value: JsonValue, think: JsonValue
) -> None:
    assert written(**{field: value}) == {"think": think}


@pytest.mark.parametrize(
    ("thinking", "terms", "think"),
    [
        (UNSAID, ModelSettings("m"), None),
        (ThinkingOptions(is_on=False), ModelSettings("m"), False),
        (ThinkingOptions(is_on=False), ModelSettings("m", thinks=False), False),
        (ThinkingOptions(is_on=True, budget=64), ModelSettings("m"), True),
        (ThinkingOptions(is_on=True), ModelSettings("m", thinks=False), None),
        (ThinkingOptions(effort="high"), ModelSettings("m"), None),
        (ThinkingOptions(effort="max"), ModelSettings("m", has_efforts=True), "high"),
        (
            ThinkingOptions(is_on=True, effort="brand_new"),
            ModelSettings("m", has_efforts=True),
            True,
        ),
        (ThinkingOptions(is_on=False, effort="high"), ModelSettings("m", has_efforts=True), False),
    ],
)
def test_what_no_field_says_of_thoughts_is_said_as_far_as_the_model_knows_it(
    thinking: ThinkingOptions, terms: ModelSettings, think: JsonValue
) -> None:
    asked = upstream_request()
    asked = replace(asked, request=replace(asked.request, thinking=thinking))
    assert body_fields(asked, terms).get("think") == think


def test_a_switch_counts_more_than_the_clients_effort() -> None:
    asked = upstream_request(reasoning_effort="high")
    off = replace(asked.request.thinking, is_on=False)
    switched = replace(asked, request=replace(asked.request, thinking=off))
    assert body_fields(switched, ModelSettings("m"))["think"] is False


def test_log_probabilities_are_asked_for_as_they_were() -> None:
    assert written(logprobs=True, top_logprobs=3) == {"logprobs": True, "top_logprobs": 3}


@pytest.mark.parametrize("value", ["10m", 300, -1, 0])
def test_a_client_may_say_how_long_the_model_stays_loaded(value: JsonValue) -> None:
    assert written(ModelSettings("m", keep_alive="5m"), keep_alive=value) == {"keep_alive": value}


def test_what_a_client_of_ollama_says_of_loading_is_said_again() -> None:
    asked = upstream_request(temperature=0.5)
    load = LoadOptions({"num_ctx": 5, "num_gpu": 1}, "5m", 300.0)
    told = replace(asked, request=replace(asked.request, load=load))
    assert body_fields(told, ModelSettings("m", num_ctx=9, keep_alive="1m")) == {
        "keep_alive": "5m",
        "options": {"temperature": 0.5, "num_gpu": 1, "num_ctx": 9},
    }


def test_the_operators_terms_are_in_every_body() -> None:
    terms = ModelSettings("m", num_ctx=8192, keep_alive="5m")
    assert written(terms, seed=1) == {"keep_alive": "5m", "options": {"seed": 1, "num_ctx": 8192}}


def test_options_of_ollama_are_carried_over() -> None:
    wanted: JsonObject = {"num_gpu": 0, "top_k": 3, "num_ctx": 8192}
    assert written(ModelSettings("m", num_ctx=8192), options=wanted) == {"options": wanted}


@pytest.mark.parametrize(
    "fields",
    [
        {"user": "anna", "metadata": {"a": "b"}, "store": True, "service_tier": "auto"},
        {"parallel_tool_calls": False, "stream": True, "stream_options": {"include_usage": True}},
        {"n": 1, "functions": [], "temper": {}, "logit_bias": {}, "modalities": ["text"]},
        {"truncate": False, "shift": False, "verbosity": "medium", "function_call": "auto"},
        {"temperature": None, "grammar": None, "unheard_of": None},
    ],
)
def test_what_asks_nothing_of_a_model_asks_nothing_of_ollama(fields: JsonObject) -> None:
    assert written(**fields) == {}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"logit_bias": {"50256": -100}}, "logit_bias"),
        ({"modalities": ["text", "audio"]}, "modalities"),
        ({"audio": {"voice": "alloy"}}, "audio"),
        ({"web_search_options": {}}, "web_search_options"),
        ({"function_call": {"name": "look"}}, "function_call"),
        ({"verbosity": "low"}, "verbosity"),
        ({"format": "json"}, "format"),
        ({"truncate": True}, "truncate"),
        ({"shift": True}, "shift"),
        ({"grammar": "root ::= x"}, "grammar"),
        ({"think": 3}, "think"),
        ({"chat_template_kwargs": {"enable_thinking": True, "x": 1}}, "chat_template_kwargs"),
        ({"chat_template_kwargs": {"enable_thinking": 1}}, "chat_template_kwargs"),
        ({"keep_alive": True}, "keep_alive"),
        ({"keep_alive": {}}, "keep_alive"),
        ({"options": [1]}, "options"),
        ({"options": {"mirostat": 2}}, "options.mirostat"),
        ({"options": {"num_ctx": 4096}}, "options.num_ctx"),
        ({"temperature": 1.0, "options": {"temperature": 0.5}}, "options.temperature"),
        ({"max_tokens": 5, "options": {"num_predict": 6}}, "max_tokens"),
        ({"think": True, "reasoning_effort": "none"}, "reasoning_effort"),
    ],
)
def test_what_ollama_cannot_do_is_refused_by_name(fields: JsonObject, param: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        written(**fields)
    assert refused.value.param == param
    assert refused.value.problem.endswith(".")


def test_fields_that_went_elsewhere_are_left_out() -> None:
    asked = replace(upstream_request(response_format=FORM), omits=frozenset({"response_format"}))
    assert body_fields(asked, TERMS) == {}


def test_a_constrained_attempt_has_the_schema_for_its_format() -> None:
    call: JsonObject = {"type": "object", "required": ["name", "arguments"]}
    asked = replace(upstream_request(response_format=FORM), schema=call)
    assert body_fields(asked, TERMS) == {"format": call}


def test_every_field_with_a_counterpart_is_written_by_somebody() -> None:
    values: JsonObject = {
        "stop": "a",
        "response_format": {"type": "json_object"},
        "reasoning_effort": "low",
        "think": True,
        "chat_template_kwargs": {"enable_thinking": True},
        "keep_alive": 1,
        "options": {"seed": 1},
    }
    fields = {name for name, row in FIELDS.items() if row == CARRIED}
    assert fields == set(values)
    for name, value in values.items():
        assert written(**{name: value}) != {}


def test_stops_of_our_own_join_those_of_the_client() -> None:
    asked = replace(upstream_request(stop="a"), stops=("x",))
    assert body_fields(asked, TERMS) == {"options": {"stop": ["a", "x"]}}


def test_the_table_names_every_field_of_a_chat_completion_request() -> None:
    assert set(ChatCompletionRequest.model_fields) <= set(FIELDS)


def test_the_guide_tells_what_becomes_of_every_field() -> None:
    guide = Path(__file__).parents[4] / "docs" / "guides" / "ollama.md"
    table = guide.read_text(encoding="utf-8").partition("| field |")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| (`.+?) \|", table, re.MULTILINE)
    named = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    assert set(named) == {*FIELDS, "enable_thinking"}
    assert len(named) == len(set(named))


@pytest.mark.parametrize(
    "name", [name for name, row in FIELDS.items() if row.target.startswith("options.")]
)
def test_what_becomes_an_option_is_one_that_ollama_knows(name: str) -> None:
    row = FIELDS[name]
    assert row.target.removeprefix("options.") in OPTIONS


@pytest.mark.parametrize(
    "name", [name for name, row in FIELDS.items() if row.handling is Handling.REFUSED]
)
def test_every_refusal_says_what_to_do_instead(name: str) -> None:
    row = FIELDS[name]
    assert row.note.endswith(".")
