from collections.abc import Iterable

import pytest
from msgspec.structs import replace

from proxy.backends.capabilities import (
    Capability,
    Lacks,
    LearnedRefusals,
    directives,
    directives_without,
    suspected_features,
    without_missing_features,
)
from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.messages import Message
from proxy.conversation.requests import Parsing, ThinkingOptions, UpstreamRequest
from proxy.conversation.tools import NamedTool, Tool, ToolCall, ToolUse
from proxy.dialects.openai_chat.encode import encode_request
from proxy.errors import BackendRefused
from proxy.guardrails.contents import plain_message
from proxy.guardrails.schemas.rewriting import call_schema
from tests.fakes.upstream_requests import upstream_request

SCHEMA: JsonObject = {"type": "object", "required": ["name"]}


@pytest.mark.parametrize(
    ("chat_request", "fields"),
    [
        # with tools, the tool choice constrains the reply
        (upstream_request(), {}),
        (upstream_request(tool_choice=ToolUse.REQUIRED), {}),
        (upstream_request(tool_choice=NamedTool("get_weather")), {}),
        (upstream_request(tool_choice=ToolUse.NONE), {"tool_choice": "none"}),
        (upstream_request(schema=SCHEMA, parsing=Parsing.OURS), {"tool_choice": "required"}),
        (
            upstream_request(tool_choice=ToolUse.REQUIRED, parsing=Parsing.OURS),
            {"tool_choice": "none"},
        ),
        # without tools there is nothing to constrain
        (upstream_request(has_tools=False), {}),
        (upstream_request(has_tools=False, parsing=Parsing.OURS), {}),
    ],
)
def test_an_unknown_engine_is_constrained_only_by_tool_choice(
    chat_request: UpstreamRequest, fields: JsonObject
) -> None:
    assert directives(chat_request) == fields


def test_a_schema_replaces_the_tool_choice_if_tools_are_in_the_prompt() -> None:
    assert directives(upstream_request(has_tools=False, schema=SCHEMA)) == {
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "tool_call", "schema": SCHEMA, "strict": True},
        }
    }


@pytest.mark.parametrize("tool_choice", [ToolUse.AUTO, ToolUse.NONE])
def test_calls_singly_sets_parallel_tool_calls_to_false_unless_the_client_sends_the_field(
    tool_choice: ToolUse,
) -> None:
    single = replace(upstream_request(tool_choice=tool_choice), calls_singly=True)
    assert directives(single)["parallel_tool_calls"] is False
    decided = {**single.request.fields, "parallel_tool_calls": b"true"}
    client_decided = replace(single, request=replace(single.request, fields=decided))
    assert "parallel_tool_calls" not in directives(client_decided)


NAMED = upstream_request(tool_choice=NamedTool("get_weather"))
REQUIRED = upstream_request(tool_choice=ToolUse.REQUIRED)
CONSTRAINED = upstream_request(schema={"type": "object"})
FORM: JsonObject = {
    "type": "json_schema",
    "json_schema": {"name": "tool_call", "schema": {"type": "object"}, "strict": True},
}

_UNBOUND = (Capability.BOUND_ARGUMENTS, Capability.STRICT_TOOLS, Capability.BOUND_TEXT)
OFF: JsonObject = {"enable_thinking": False, "thinking": False}

NO_PARSER = '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'
NO_OBJECT = "Invalid tool_choice type: 'object'. Supported string values: none, auto, required"
NO_REQUIRED = "The tool_choice parameter does not support being set to required or object"
NO_OPTIONS = "body.stream_options: Extra inputs are not permitted"
NO_PARALLEL = "Unrecognized request argument supplied: parallel_tool_calls"
NO_TEMPLATE = "chat_template is not supported for Mistral tokenizers."
NO_EFFORT = "Unsupported parameter: 'reasoning_effort' is not supported with this model."
NO_LIMIT = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."  # noqa: E501
NO_LONG_LIMIT = "unknown field max_completion_tokens"


def limited(name: str) -> UpstreamRequest:
    request = upstream_request()
    fields = {**request.request.fields, name: b"9"}
    return replace(request, request=replace(request.request, fields=fields, max_tokens=9))


def thinking(*, is_on: bool | None = None, effort: str = "") -> UpstreamRequest:
    request = upstream_request()
    return replace(
        request, request=replace(request.request, thinking=ThinkingOptions(is_on, effort))
    )


def lacking(*lacks: Capability) -> Lacks:
    return dict.fromkeys(lacks, "")


def missing_capability(
    refused: BackendRefused, request: UpstreamRequest, lacks: Iterable[Capability]
) -> Capability | None:
    """Return the capability that a refusal reveals as missing, None if it reveals none.

    It is the first suspected capability that is not in `lacks` and that changes the request.
    """
    known = lacking(*lacks)

    def sent(lacks: Lacks) -> bytes:
        put = without_missing_features(request, lacks)
        return encode_request(put, directives_without(put, lacks))

    news = (
        capability
        for capability, _ in suspected_features(refused, request)
        if capability not in known
    )
    return next((item for item in news if sent({**known, item: ""}) != sent(known)), None)


def refusal(message: str, status: int = 400, param: str = "") -> BackendRefused:
    return BackendRefused("http://host", status, message, param=param)


@pytest.mark.parametrize(
    ("message", "chat_request", "missing"),
    [
        (NO_PARSER, upstream_request(), Capability.TOOL_PARSER),
        (NO_PARSER, upstream_request(has_tools=False), None),
        (NO_OBJECT, NAMED, Capability.NAMED_CHOICE),
        (NO_OBJECT, upstream_request(), None),
        (NO_REQUIRED, REQUIRED, Capability.REQUIRED_CHOICE),
        (NO_REQUIRED, CONSTRAINED, Capability.REQUIRED_CHOICE),
        (NO_OPTIONS, upstream_request(), Capability.STREAM_USAGE),
        (NO_PARALLEL, replace(upstream_request(), calls_singly=True), Capability.PARALLEL_CHOICE),
        (NO_PARALLEL, upstream_request(), None),
        (NO_LIMIT, limited("max_tokens"), Capability.PLAIN_LIMIT),
        (NO_LIMIT, upstream_request(), None),
        (NO_LONG_LIMIT, limited("max_completion_tokens"), Capability.COMPLETION_LIMIT),
        (NO_TEMPLATE, thinking(is_on=False), Capability.TEMPLATE_VARIABLES),
        (NO_TEMPLATE, upstream_request(), None),
        (NO_EFFORT, thinking(effort="low"), Capability.EFFORT),
        (NO_EFFORT, upstream_request(), None),
        ("Invalid schema for function", upstream_request(), None),
        ("max_tokens is too large", limited("max_tokens"), None),
    ],
)
def test_an_error_message_blames_only_a_feature_that_the_request_uses(
    message: str, chat_request: UpstreamRequest, missing: Capability | None
) -> None:
    assert missing_capability(refusal(message), chat_request, ()) is missing
    assert missing_capability(refusal(message, 500), chat_request, ()) is None


def test_the_param_of_an_error_is_searched_like_its_message() -> None:
    blaming = refusal("Unsupported value.", param="stream_options")
    assert missing_capability(blaming, upstream_request(), ()) is Capability.STREAM_USAGE


def test_a_feature_that_is_known_to_be_missing_is_not_suspected_again() -> None:
    both = {Capability.NAMED_CHOICE, Capability.REQUIRED_CHOICE}
    capability = missing_capability(refusal(NO_OBJECT), NAMED, {Capability.NAMED_CHOICE})
    assert capability is Capability.REQUIRED_CHOICE
    assert missing_capability(refusal(NO_OBJECT), NAMED, both) is None
    assert missing_capability(refusal(NO_PARSER), NAMED, {Capability.TOOL_PARSER}) is None


@pytest.mark.parametrize(
    ("chat_request", "lacks", "fields"),
    [
        (upstream_request(), set(), {}),
        (upstream_request(), {Capability.NAMED_CHOICE, Capability.REQUIRED_CHOICE}, {}),
        (NAMED, {Capability.NAMED_CHOICE}, {"tool_choice": "required"}),
        (NAMED, {Capability.NAMED_CHOICE, Capability.REQUIRED_CHOICE}, {"tool_choice": "auto"}),
        (REQUIRED, {Capability.REQUIRED_CHOICE}, {"tool_choice": "auto"}),
        (CONSTRAINED, {Capability.REQUIRED_CHOICE}, {"tool_choice": "auto"}),
        (upstream_request(tool_choice=ToolUse.NONE), set(Capability), {"tool_choice": "none"}),
        (upstream_request(), {Capability.TOOL_PARSER}, {"tool_choice": "none"}),
        (CONSTRAINED, {Capability.TOOL_PARSER}, {"tool_choice": "none", "response_format": FORM}),
        (upstream_request(has_tools=False), set(Capability), {}),
        (replace(upstream_request(), calls_singly=True), {Capability.PARALLEL_CHOICE}, {}),
        (limited("max_tokens"), {Capability.PLAIN_LIMIT}, {"max_completion_tokens": 9}),
        (limited("max_completion_tokens"), {Capability.COMPLETION_LIMIT}, {"max_tokens": 9}),
        (upstream_request(), {Capability.COMPLETION_LIMIT}, {}),
        (thinking(is_on=False), set(), {"chat_template_kwargs": OFF}),
        (thinking(is_on=False), {Capability.TEMPLATE_VARIABLES}, {}),
        (thinking(effort="max"), set(), {"reasoning_effort": "high"}),
        (thinking(effort="max"), {Capability.EFFORT}, {}),
    ],
)
def test_features_that_an_engine_lacks_are_not_sent(
    chat_request: UpstreamRequest, lacks: set[Capability], fields: dict[str, JsonValue]
) -> None:
    assert directives_without(chat_request, lacking(*lacks)) == fields


PICK, DROP = (
    Tool(name, {"type": "object"}, json.dump({"type": "function", "function": {"name": name}}))
    for name in ("pick", "drop")
)


def last_attempt(*due: Tool) -> UpstreamRequest:
    return replace(upstream_request(schema=call_schema(due)), tools=(PICK, DROP))


@pytest.mark.parametrize(
    ("chat_request", "lacks", "choice", "has_schema"),
    [
        (last_attempt(PICK, DROP), {Capability.BOUND_ARGUMENTS}, "required", False),
        (
            last_attempt(DROP),
            {Capability.BOUND_ARGUMENTS},
            {"type": "function", "function": {"name": "drop"}},
            False,
        ),
        (
            last_attempt(DROP),
            {Capability.BOUND_ARGUMENTS, Capability.NAMED_CHOICE},
            "required",
            False,
        ),
        (last_attempt(PICK), {Capability.BOUND_ARGUMENTS, Capability.STRICT_TOOLS}, "none", True),
        (replace(last_attempt(), schema=SCHEMA), {Capability.BOUND_ARGUMENTS}, "none", True),
        (last_attempt(PICK), {*_UNBOUND}, "required", None),
        (last_attempt(PICK), set(), "required", None),
    ],
)
def test_a_call_is_constrained_by_strict_tools_or_by_a_schema(
    chat_request: UpstreamRequest,
    lacks: set[Capability],
    choice: JsonValue,
    *,
    has_schema: bool | None,
) -> None:
    """`has_schema` is True for a schema of the text, False for strict tools, None for neither."""
    fields = directives_without(chat_request, lacking(*lacks))
    assert fields["tool_choice"] == choice
    assert ("response_format" in fields) == (has_schema is True)
    is_strict = json.dump(fields.get("tools")).count(b'"strict":true') == 2
    assert is_strict == (has_schema is False)


def test_the_fields_of_missing_features_are_omitted() -> None:
    request = limited("max_completion_tokens")
    left = without_missing_features(request, lacking(*Capability)).omits
    assert left >= {"stream_options", "parallel_tool_calls", "max_completion_tokens"}
    assert without_missing_features(request, {}) is request


def test_every_capability_describes_its_substitute() -> None:
    assert all(
        json.dump_text(capability.value) and len(capability.value) > 20 for capability in Capability
    )


def request_with(**fields: JsonValue) -> UpstreamRequest:
    client_request = upstream_request(has_tools=False)
    fields_sent = {name: json.dump(value) for name, value in fields.items()}
    request = replace(
        client_request.request, fields={**client_request.request.fields, **fields_sent}
    )
    return replace(client_request, request=request)


@pytest.mark.parametrize(
    ("message", "wanted", "sent"),
    [
        ("Unexpected reasoning effort high. Supported types are xhigh and low.", "high", "xhigh"),
        ("reasoning_effort: Input should be 'low' or 'high'", "medium", "high"),
        ("reasoning_effort: Input should be 'none' or 'high'", "minimal", "none"),
        ("reasoning_effort 'max' is unknown: low, medium", "max", "medium"),
    ],
)
def test_a_refused_reasoning_effort_is_replaced_by_the_nearest_supported_effort(
    message: str, wanted: str, sent: str
) -> None:
    request = request_with(reasoning_effort=wanted)
    capability, offered = next(suspected_features(refusal(message), request))
    assert capability is Capability.EFFORT_WORDS
    put = without_missing_features(request, {capability: offered})
    assert put.request.fields["reasoning_effort"] == json.dump(sent)
    adjusted = request_with(chat_template_kwargs={"reasoning_effort": wanted, "a": 1})
    capability, offered = next(suspected_features(refusal(message), adjusted))
    put = without_missing_features(adjusted, {capability: offered})
    variables: JsonObject = {"reasoning_effort": sent, "a": 1}
    assert json.parse(put.request.fields["chat_template_kwargs"]) == variables
    assert "reasoning_effort" not in put.request.fields


def test_an_unknown_reasoning_effort_is_sent_unchanged() -> None:
    request = request_with(reasoning_effort="enormous")
    assert without_missing_features(request, {Capability.EFFORT_WORDS: "low high"}) == request
    assert not [*suspected_features(refusal("no reasoning effort, please", 500), request)]


def test_calls_and_results_become_alternating_messages_for_an_engine_without_tools() -> None:
    request = upstream_request()
    call = ToolCall("a", "get_weather", "{}")
    source: JsonObject = {"role": "assistant", "content": None, "tool_calls": []}
    history = (
        plain_message("system", "Be kind."),
        *request.messages,
        Message("assistant", "", json.dump(source), (call,)),
        Message("tool", "sunny", b'{"role":"tool","content":"sunny"}', tool_call_id="a"),
        plain_message("user", "And now?"),
    )
    lacks = lacking(Capability.TOOLS, Capability.SYSTEM_ROLE, Capability.REPEATED_ROLES)
    put = without_missing_features(replace(request, messages=history), lacks)
    assert [message.role for message in put.messages] == ["user", "assistant", "user"]
    assert put.tools == ()
    assert {"tools", "tool_choice"} <= put.omits
    later = without_missing_features(replace(request, messages=history, tools=()), lacks)
    assert "get_weather" in later.messages[1].text


def test_a_history_without_a_user_message_gets_one_if_the_engine_requires_it() -> None:
    request = replace(upstream_request(), messages=(plain_message("system", "Begin."),))
    put = without_missing_features(request, lacking(Capability.USERLESS))
    assert [message.text for message in put.messages] == ["Begin.", "Continue."]
    assert (
        without_missing_features(upstream_request(), lacking(Capability.USERLESS)).messages
        == upstream_request().messages
    )


def test_tools_do_not_move_into_or_out_of_the_prompt_within_a_conversation() -> None:
    """Neither the refusal of another request nor the expiry of a refusal moves the tools."""
    now = [0.0]
    learned = LearnedRefusals("engine", lambda: now[0])
    answer = plain_message("assistant", "b")

    def lacks(text: str, *, is_open: bool) -> bool:
        request = upstream_request(text=text).request
        if is_open:
            request = replace(request, messages=(*request.messages, answer))
        return Capability.TOOLS in learned.for_conversation(learned.of("m"), request, {})

    assert not lacks("a", is_open=False)
    learned.add("m", Capability.TOOLS)
    learned.note_described_tools(upstream_request(text="lost").request, {})
    assert not lacks("a", is_open=True)
    assert lacks("lost", is_open=True)
    assert lacks("new", is_open=False)
    now[0] = 601.0
    assert lacks("lost", is_open=True)
    assert lacks("new", is_open=True)
    assert not lacks("newer", is_open=False)
    learned.note_build("b1")
    learned.note_build("b2")
    assert not lacks("lost", is_open=True)
