"""The fields of a request beside its messages and tools, in Anthropic's words.

The API refuses what it does not know, in words about its own fields. So what it cannot do is
refused by the name that the client knows, and so is the same thing asked for twice in different
ways.
"""

from dataclasses import dataclass, field

from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.requests import Parsing, Question, Thinking
from proxy.dialects.anthropic_messages.upstream.tools import encode_choice, is_forced
from proxy.dialects.engine_language import carry_fields, form_schema, put_once
from proxy.dialects.field_table import (
    CARRIED,
    ENFORCED,
    IGNORED,
    FieldTable,
    copies,
    refuse,
    rows,
)
from proxy.errors import InvalidRequest

_NO_PARAMETER = "Anthropic's API has no such parameter. Leave it out."
_TEXT_ONLY = "Anthropic's models answer with text only. Leave it out."

FIELDS = FieldTable(
    # what OpenAI's clients send; the first are written by `encode`, or seen to by Temper
    rows(ENFORCED, "model messages tools tool_choice parallel_tool_calls functions stream"),
    rows(ENFORCED, "stream_options n max_tokens max_completion_tokens temper"),
    rows(CARRIED, "stop response_format reasoning_effort"),
    copies("temperature top_p top_k"),
    rows(refuse(_NO_PARAMETER, (0,)), "presence_penalty frequency_penalty top_logprobs min_p"),
    rows(refuse(_NO_PARAMETER, (1,)), "typical_p repeat_penalty repetition_penalty"),
    {
        "function_call": refuse("Offer `tools` and use `tool_choice`.", ("auto", "none")),
        "seed": refuse(_NO_PARAMETER),
        "logprobs": refuse(_NO_PARAMETER, (False,)),
        "logit_bias": refuse(_NO_PARAMETER, ({},)),
        "verbosity": refuse("Anthropic's API has no such parameter. Ask in words.", ("medium",)),
        "modalities": refuse(_TEXT_ONLY, (["text"],)),
        "audio": refuse(_TEXT_ONLY),
        "web_search_options": refuse("Nothing here runs the search. Offer a tool for it."),
    },
    rows(IGNORED, "prediction store user metadata service_tier safety_identifier"),
    rows(IGNORED, "prompt_cache_key prompt_cache_retention"),
    # what clients of other engines send
    {
        "chat_template_kwargs": CARRIED,
        "cache_prompt": refuse(_NO_PARAMETER, (True,)),
    },
    # Anthropic's own
    copies("thinking cache_control"),
    {
        "stop_sequences": refuse("Use `stop`."),
        "system": refuse("Send it as the first message, with the role `system`."),
    },
    unknown=refuse("Anthropic's API knows no such field. Leave it out."),
)

_EFFORTS: dict[JsonValue, JsonValue] = {"minimal": "low"}
_DISABLED: JsonObject = {"type": "disabled"}
_ADAPTIVE: JsonObject = {"type": "adaptive"}
_CACHED: JsonObject = {"type": "ephemeral"}
_SHORTEST_LIMIT = 4096  # tokens; every model of Anthropic's answers with as many


@dataclass(frozen=True, slots=True)
class ModelLimits:
    """What is known of the model that is asked: its name there, and its bounds in tokens.

    `longest_answer` is the most that it writes, `window` the room for prompt and answer together;
    None where nobody knows.
    """

    model: str
    longest_answer: int | None = None
    window: int | None = None

    def limit(self, wanted: int | None) -> int:
        """Return the most tokens of an answer, which the API wants to be told."""
        if wanted is None:
            half = _SHORTEST_LIMIT if self.window is None else self.window // 2
            wanted = half if self.longest_answer is None else self.longest_answer
        most = wanted if self.longest_answer is None else min(wanted, self.longest_answer)
        return max(1, most)


@dataclass(slots=True)
class _Body:
    """The members written so far; `output` is the API's `output_config`."""

    members: JsonObject = field(default_factory=dict)
    output: JsonObject = field(default_factory=dict)

    def put(self, name: str, value: JsonValue, param: str) -> None:
        """Write a member."""
        put_once(self.members, name, value, param)


def body_fields(question: Question) -> JsonObject:
    """Write what shapes an answer, its limit excepted; raises InvalidRequest."""
    body = _Body()
    if (choice := encode_choice(question)) is not None:
        body.members["tool_choice"] = choice
    for name, value, target in carry_fields(question, FIELDS):
        if target:
            body.put(target, value, name)
        else:
            _write(body, name, value, question)
    _write_thinking(body, question.request.thinking)
    if question.stops:
        body.members["stop_sequences"] = [*question.stop_strings]
    if is_forced(choice) and body.members.get("thinking") != _DISABLED:
        # the API refuses thoughts before a call that it is told to force
        body.members.pop("thinking", None)
    if question.tools and "cache_control" not in question.request.fields:
        # whoever calls tools comes back with the same prompt and more; nothing is cached unasked
        body.members["cache_control"] = _CACHED
    if body.output:
        body.members["output_config"] = body.output
    return body.members


def _write(body: _Body, name: str, value: JsonValue, question: Question) -> None:
    match name:
        case "stop":
            body.put("stop_sequences", [value] if isinstance(value, str) else value, name)
        case "response_format":
            if question.parsing is Parsing.BACKEND:
                _write_form(body, value)
        case "reasoning_effort":
            _write_effort(body, value)
        case _:
            body.put("thinking", _thinking(value), name)


def _write_form(body: _Body, wanted: JsonValue) -> None:
    """Ask for the form of an answer; where it is checked here, nobody asks for it there."""
    if not isinstance(wanted, dict) or wanted.get("type") == "text":
        return
    schema = form_schema(wanted)
    if schema is None:
        problem = 'Anthropic\'s API wants to know the schema: {"type": "json_schema", ...}.'
        raise InvalidRequest(problem, "response_format")
    body.output["format"] = {"type": "json_schema", "schema": schema}


def _write_effort(body: _Body, value: JsonValue) -> None:
    if value == "none":
        body.put("thinking", _DISABLED, "reasoning_effort")
    else:
        body.output["effort"] = _EFFORTS.get(f"{value}", value)


def _write_thinking(body: _Body, thinking: Thinking) -> None:
    """Say of thoughts what no field of the client's says; a switch counts more than an effort."""
    if thinking.effort and thinking.effort != "none":
        body.output.setdefault("effort", _EFFORTS.get(thinking.effort, thinking.effort))
    if thinking.is_on is False:
        body.members["thinking"] = _DISABLED
    elif thinking.is_on:
        budget: JsonObject = {"type": "enabled", "budget_tokens": thinking.budget}
        body.members.setdefault("thinking", _ADAPTIVE if thinking.budget is None else budget)


def _thinking(value: JsonValue) -> JsonValue:
    wanted = value.get("enable_thinking") if isinstance(value, dict) and len(value) == 1 else None
    if not isinstance(wanted, bool):
        problem = "Anthropic's API has no templates. Of their variables, only `enable_thinking`"
        raise InvalidRequest(f"{problem} means something there.", "chat_template_kwargs")
    return _ADAPTIVE if wanted else _DISABLED
