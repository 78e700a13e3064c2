"""Thoughts before the answer: what a request says of them, and how engines are told the rest.

Chat completions have one field for it, `reasoning_effort`; llama-server, vLLM and SGLang switch
thoughts by a variable of the chat template. What a client wrote itself goes out as it came.
"""

from collections.abc import Mapping, Sequence

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.requests import UNSAID, Request, ThinkingOptions
from proxy.dialects.lenient_json import as_object, as_whole

EFFORT, VARIABLES, BUDGET = "reasoning_effort", "chat_template_kwargs", "thinking_budget_tokens"

# Qwen3's and GLM's templates know the first, DeepSeek's, Kimi's and Granite's the second. What a
# template does not know it never reads.
SWITCHES = ("enable_thinking", "thinking")

# In the language of backends the best effort is high.
_EFFORTS = {word: word for word in ("minimal", "low", "medium", "high")}
_EFFORTS |= {"xhigh": "high", "max": "high"}
_NO_EFFORT = "none"


def thinking_in(fields: Mapping[str, bytes]) -> ThinkingOptions:
    if fields.keys().isdisjoint((EFFORT, VARIABLES, BUDGET)):
        return UNSAID
    effort = _value(fields, EFFORT)
    budget = _value(fields, BUDGET)
    is_on = _find_switch(_variables(fields))
    if is_on is None and effort == _NO_EFFORT:
        is_on = False
    return ThinkingOptions(
        is_on, effort if isinstance(effort, str) and effort != _NO_EFFORT else "", as_whole(budget)
    )


def thinking_fields(
    request: Request, switches: Sequence[str] = SWITCHES, *, takes_budget: bool = False
) -> JsonObject:
    """Return the fields that tell an engine of thoughts what the client's own do not.

    `switches` are the variables that it may know; the client's others stay beside them.
    """
    thinking, fields = request.thinking, request.fields
    if thinking == UNSAID:
        return {}
    added: JsonObject = {}
    effort = _EFFORTS.get(thinking.effort)
    if effort is not None and EFFORT not in fields:
        added[EFFORT] = effort
    variables = _variables(fields)
    if thinking.is_on is not None and _find_switch(variables) is None:
        added[VARIABLES] = {**variables, **dict.fromkeys(switches, thinking.is_on)}
    if takes_budget and thinking.budget is not None and BUDGET not in fields:
        added[BUDGET] = thinking.budget
    return added


def _find_switch(variables: JsonObject) -> bool | None:
    told = (variables.get(name) for name in SWITCHES)
    return next((value for value in told if isinstance(value, bool)), None)


def _variables(fields: Mapping[str, bytes]) -> JsonObject:
    return as_object(_value(fields, VARIABLES))


def _value(fields: Mapping[str, bytes], name: str) -> JsonValue:
    return json.parse(fields[name]) if name in fields else None
