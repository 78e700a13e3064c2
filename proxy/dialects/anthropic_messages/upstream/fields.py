"""The fields of an upstream request for Anthropic's API, except messages and tools.

    {"stop": "X", "reasoning_effort": "high", "tool_choice": "required"}
    -> {"tool_choice": {"type": "any"}, "stop_sequences": ["X"],
        "output_config": {"effort": "high"}}

The API's own errors contain the API's names, which clients of chat completions do not know.
Therefore, Temper itself rejects a field that the API does not have, and names the field as the
client does. Temper also rejects a request in which two fields set one field of the API to different
values.
"""

from dataclasses import dataclass

from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.requests import Parsing, ThinkingOptions, UpstreamRequest
from proxy.conversation.tools import NamedTool, ToolUse
from proxy.dialects.engine_language import COMMON, carry_fields, format_schema, group_in, put_once
from proxy.dialects.field_table import CARRIED, FieldTable, copies, refuse, rows
from proxy.errors import InvalidRequest

_NO_PARAMETER = "Anthropic's API has no such parameter. Remove it."
_TEXT_ONLY = "Anthropic's models return text only. Remove it."

FIELDS = FieldTable(
    COMMON,
    rows(CARRIED, "stop response_format reasoning_effort chat_template_kwargs"),
    copies("temperature top_p top_k"),
    rows(refuse(_NO_PARAMETER, (0,)), "presence_penalty frequency_penalty top_logprobs min_p"),
    rows(refuse(_NO_PARAMETER, (1,)), "typical_p repeat_penalty repetition_penalty"),
    {
        "seed": refuse(_NO_PARAMETER),
        "logprobs": refuse(_NO_PARAMETER, (False,)),
        "logit_bias": refuse(_NO_PARAMETER, ({},)),
        "verbosity": refuse(
            "Anthropic's API has no such parameter. Ask for it in the prompt.", ("medium",)
        ),
        "modalities": refuse(_TEXT_ONLY, (["text"],)),
        "audio": refuse(_TEXT_ONLY),
        "web_search_options": refuse("Temper runs no web search. Provide a tool for it."),
        "cache_prompt": refuse(_NO_PARAMETER, (True,)),
    },
    # fields that only Anthropic's API has
    copies("thinking cache_control"),
    {
        "stop_sequences": refuse("Use `stop`."),
        "system": refuse("Send it as the first message, with the role `system`."),
    },
    unknown=refuse("Anthropic's API has no such field. Remove it."),
)

_OUTPUT = "output_config"
_EFFORTS: dict[JsonValue, JsonValue] = {"minimal": "low"}
_DISABLED: JsonObject = {"type": "disabled"}
_ADAPTIVE: JsonObject = {"type": "adaptive"}
_CACHED: JsonObject = {"type": "ephemeral"}
_SHORTEST_LIMIT = 4096  # tokens; all of Anthropic's models allow at least this many


@dataclass(frozen=True, slots=True)
class ModelLimits:
    """The backend's name of a model, and the model's limits in tokens, None if unknown.

    `longest_answer` limits the answer, and `window` limits prompt and answer together.
    """

    model: str
    longest_answer: int | None = None
    window: int | None = None

    def limit(self, requested: int | None) -> int:
        """Return `max_tokens`, which the API requires; `requested` is the client's limit."""
        if requested is None:
            half = _SHORTEST_LIMIT if self.window is None else self.window // 2
            requested = half if self.longest_answer is None else self.longest_answer
        limit = requested if self.longest_answer is None else min(requested, self.longest_answer)
        return max(1, limit)


def body_fields(upstream_request: UpstreamRequest) -> JsonObject:
    """Write the fields that affect an answer, except `max_tokens`; raises InvalidRequest."""
    body: JsonObject = {}
    if (choice := encode_choice(upstream_request)) is not None:
        body["tool_choice"] = choice
    for name, value, target in carry_fields(upstream_request, FIELDS):
        if target:
            put_once(body, target, value, name)
        else:
            _write(body, name, value, upstream_request)
    _write_thinking(body, upstream_request.request.thinking)
    if upstream_request.stops:
        body["stop_sequences"] = [*upstream_request.stop_strings]
    if is_forced(choice) and body.get("thinking") != _DISABLED:
        # the API rejects a request with both reasoning and a forced call
        body.pop("thinking", None)
    if upstream_request.tools and "cache_control" not in upstream_request.request.fields:
        # The API caches a prompt only on request, and charges more for writing the cache. With
        # tools, this pays off, because the client sends the same prompt again after a call.
        body["cache_control"] = _CACHED
    output = body.pop(_OUTPUT, None)
    return {**body, _OUTPUT: output} if output else body


def encode_choice(upstream_request: UpstreamRequest) -> JsonObject | None:
    """Return `tool_choice`; None for the API's default, which is `auto` with parallel calls.

    The tools stay in the prompt with every choice, so that the prompt cache stays valid. If the
    whole output has to satisfy a schema, a call is forced, because the API has no grammars.
    """
    if not upstream_request.tools:
        return None
    choice = upstream_request.tool_choice
    if upstream_request.schema is None and (
        upstream_request.parsing is Parsing.OURS or choice is ToolUse.NONE
    ):
        return {"type": "none"}
    is_single = upstream_request.calls_singly or not upstream_request.request.parallel_tool_calls
    parallel: JsonObject = {}
    if is_single or upstream_request.schema is not None:
        parallel = {"disable_parallel_tool_use": True}
    match choice:
        case NamedTool(name):
            return {"type": "tool", "name": name, **parallel}
        case _ if upstream_request.schema is not None or choice is ToolUse.REQUIRED:
            return {"type": "any", **parallel}
        case _:
            return {"type": "auto", **parallel} if parallel else None


def is_forced(choice: JsonObject | None) -> bool:
    return choice is not None and choice["type"] in ("any", "tool")


def _write(
    body: JsonObject, name: str, value: JsonValue, upstream_request: UpstreamRequest
) -> None:
    match name:
        case "stop":
            put_once(body, "stop_sequences", [value] if isinstance(value, str) else value, name)
        case "response_format":
            # if Temper parses the reply, it also validates the format (decision 0008)
            if upstream_request.parsing is Parsing.BACKEND:
                _write_answer_format(body, value)
        case "reasoning_effort" if value == "none":
            put_once(body, "thinking", _DISABLED, name)
        case "reasoning_effort":
            group_in(body, _OUTPUT)["effort"] = _EFFORTS.get(f"{value}", value)
        case _:
            put_once(body, "thinking", _thinking(value), name)


def _write_answer_format(body: JsonObject, requested: JsonValue) -> None:
    if not isinstance(requested, dict) or requested.get("type") == "text":
        return
    schema = format_schema(requested)
    if schema is None:
        problem = 'Anthropic\'s API requires a schema: {"type": "json_schema", ...}.'
        raise InvalidRequest(problem, "response_format")
    group_in(body, _OUTPUT)["format"] = {"type": "json_schema", "schema": schema}


def _write_thinking(body: JsonObject, thinking: ThinkingOptions) -> None:
    """Add the reasoning options that no client field sets; `is_on=False` replaces client fields."""
    if thinking.effort and thinking.effort != "none":
        effort = _EFFORTS.get(thinking.effort, thinking.effort)
        group_in(body, _OUTPUT).setdefault("effort", effort)
    if thinking.is_on is False:
        body["thinking"] = _DISABLED
    elif thinking.is_on:
        budget: JsonObject = {"type": "enabled", "budget_tokens": thinking.budget}
        body.setdefault("thinking", _ADAPTIVE if thinking.budget is None else budget)


def _thinking(value: JsonValue) -> JsonValue:
    is_on = value.get("enable_thinking") if isinstance(value, dict) and len(value) == 1 else None
    if not isinstance(is_on, bool):
        problem = "Anthropic's API has no chat templates. Only the variable `enable_thinking`"
        raise InvalidRequest(f"{problem} is supported.", "chat_template_kwargs")
    return _ADAPTIVE if is_on else _DISABLED
