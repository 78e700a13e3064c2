"""Thinking options: reads them from a request, and writes them in the engine's own fields.

    {"reasoning_effort": "none"} -> {"chat_template_kwargs": {"enable_thinking": false, ...}}

Chat completions have only the field `reasoning_effort`. In llama-server, vLLM and SGLang, a
variable of the chat template switches thinking on or off. The client's own fields are sent
unchanged.
"""

from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

from msgspec.structs import replace

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.requests import UNSAID, Request, ThinkingOptions
from proxy.dialects.lenient_json import as_integer, as_object

EFFORT, VARIABLES, BUDGET = "reasoning_effort", "chat_template_kwargs", "thinking_budget_tokens"

# The templates of Qwen3 and GLM read `enable_thinking`, those of DeepSeek, Kimi and Granite read
# `thinking`. Templates ignore unknown variables.
SWITCHES = ("enable_thinking", "thinking")

# `high` is the greatest effort that all engines accept.
_EFFORTS = {word: word for word in ("minimal", "low", "medium", "high")}
_EFFORTS |= {"xhigh": "high", "max": "high"}
_NO_EFFORT = "none"
_THINK = "think"  # Ollama's field
_NAMES = (_THINK, EFFORT)

# The words for efforts, ranked.
Effort: TypeAlias = Literal["none", "no_think", "minimal", "low", "medium", "high", "xhigh", "max"]
RANKS = {
    "none": 0, "no_think": 0, "minimal": 1, "low": 2, "medium": 3, "high": 4, "xhigh": 5, "max": 6,
}  # fmt: skip


def thinking_in(fields: Mapping[str, bytes]) -> ThinkingOptions:
    if fields.keys().isdisjoint((EFFORT, VARIABLES, BUDGET)):
        return UNSAID
    effort = _value(fields, EFFORT)
    budget = _value(fields, BUDGET)
    is_on = _find_switch(_variables(fields))
    if is_on is None and effort == _NO_EFFORT:  # "none" counts only without a template variable
        is_on = False
    return ThinkingOptions(
        is_on,
        effort if isinstance(effort, str) and effort != _NO_EFFORT else "",
        as_integer(budget),
    )


def thinking_fields(
    request: Request, switches: Sequence[str] = SWITCHES, *, takes_budget: bool = False
) -> JsonObject:
    """Return the thinking fields that the engine needs in addition to the client's fields.

    `switches` are the template variables that switch thinking on or off. The client's own variables
    stay in the request.
    """
    thinking, fields = request.thinking, request.fields
    if thinking == UNSAID:  # the upstream request keeps the client's bytes (decision 0006)
        return {}
    added: JsonObject = {}
    effort = thinking.effort if thinking.is_exact else _EFFORTS.get(thinking.effort)
    if effort is not None and EFFORT not in fields:
        added[EFFORT] = effort
    sent = _variables(fields)
    variables = {**thinking.variables, **sent}
    if thinking.is_on is not None and _find_switch(sent) is None:
        variables |= dict.fromkeys(switches, thinking.is_on)
    if variables != sent:
        added[VARIABLES] = variables
    if takes_budget and thinking.budget is not None and BUDGET not in fields:
        added[BUDGET] = thinking.budget
    return added


def effort_in(request: Request) -> str:
    """Return the effort of a request from any of its fields; "" if no field has an effort."""
    efforts = map(json.parse, _raw_efforts(request))
    return next((effort for effort in efforts if isinstance(effort, str)), request.thinking.effort)


def fit_effort(request: Request, offered: Sequence[str]) -> Request:
    """Replace the effort by the nearest offered word, in the same field that the client used."""
    variables, word = _raw_variables(request), _nearest(effort_in(request), offered)
    if not word:
        return request
    fields = dict(request.fields)
    if EFFORT in variables:
        fields[VARIABLES] = json.join_object({**variables, EFFORT: json.dump(word)})
    else:
        fields[_THINK if _THINK in fields else EFFORT] = json.dump(word)
    return replace(request, fields=fields)


def fit_thinking(
    request: Request, efforts: Sequence[str], variable: str, kept_by: Mapping[str, bool]
) -> Request:
    """Translate the thinking options into the words of a model.

    `efforts` are the words that the model's chat template accepts; () means unknown. `variable` is
    the template variable for the effort, "" if the template has none. The variables in `kept_by`
    make the template keep all earlier thoughts.
    """
    if not (efforts or kept_by):
        return request
    variables: JsonObject = {**kept_by}
    thinking, requested = request.thinking, effort_in(request)
    if effort := _nearest(requested, efforts):
        if effort != requested and _raw_efforts(request):  # the client's field has another word
            request = fit_effort(request, (effort,))
        thinking = replace(thinking, effort=effort, is_exact=True)
        variables |= {variable: effort} if variable else {}
    return replace(request, thinking=replace(thinking, variables=variables))


def _nearest(requested: str, offered: Sequence[str]) -> str:
    """Return the nearest offered effort; of two that are equally near, the greater effort.

    Returns "" if `requested` is an unknown word, or if no efforts are offered.
    """
    if not offered or requested not in RANKS:
        return ""
    return min(offered, key=lambda effort: (abs(RANKS[effort] - RANKS[requested]), -RANKS[effort]))


def _raw_efforts(request: Request) -> list[bytes]:
    fields = {**_raw_variables(request), **request.fields}
    return [fields[name] for name in _NAMES if name in fields]


def _raw_variables(request: Request) -> dict[str, bytes]:
    return json.split_object(request.fields.get(VARIABLES, b"{}"))


def _find_switch(variables: JsonObject) -> bool | None:
    sent = (variables.get(name) for name in SWITCHES)
    return next((value for value in sent if isinstance(value, bool)), None)


def _variables(fields: Mapping[str, bytes]) -> JsonObject:
    return as_object(_value(fields, VARIABLES))


def _value(fields: Mapping[str, bytes], name: str) -> JsonValue:
    return json.parse(fields[name]) if name in fields else None
