"""Flawed replies of small models: flaws after the first result of a tool, and placeholders.

The texts imitate Qwen2.5-Coder-Instruct 0.5B and 1.5B (Q4_K_M) on llama-server. These models write
every call as text. They repeat an executed call, echo a result, or invent a result after a call:

    {"name": "list_files", "arguments": {"folder": "inbox"}}
    {"files": ["inbox/a.txt"]}
"""

import random
from collections.abc import Sequence
from typing import TypeAlias

from proxy.conversation.json import JsonObject, JsonValue
from temper_evals.scenarios.scenario import PlannedCall
from temper_evals.scenarios.task import calls_of, read_call
from temper_evals.scenarios.worlds import key_of
from temper_evals.simulated.profiles import Flaw, ModelProfile
from temper_evals.simulated.renderings import as_text

Executed: TypeAlias = list[tuple[PlannedCall, str]]

_BARE = "{call}"
_TAGGED = "<tool_response>\n{call}\n</tool_response>"
_BLOCK = "```json\n{call}\n```"
_INVENTED_RESULTS = ('{"ok": true}', '{"status": "success"}', '{"result": "done", "id": 1}')
# of five observed calls with an invented result, one call was new; the others were repetitions
_NEW_CALL = 0.2
_PLACEHOLDERS = {
    "to": "user@example.com",
    "date": "2024-01-01",
    "title": "Meeting",
    "name": "John Doe",
}


def executed(messages: Sequence[JsonObject]) -> Executed:
    """Return each distinct call that has a result, with its first result, in order."""
    calls = {str(call.get("id")): call for message in messages for call in calls_of(message)}
    results: dict[str, tuple[PlannedCall, str]] = {}
    for message in messages:
        call = read_call(calls.get(str(message.get("tool_call_id")), {}))
        if message.get("role") == "tool" and call is not None:
            key = key_of(call.name, call.arguments)
            results.setdefault(key, (call, str(message.get("content"))))
    return [*results.values()]


def executed_calls(messages: Sequence[JsonObject]) -> list[PlannedCall]:
    """Return each distinct call that has a result, in order."""
    return [call for call, _ in executed(messages)]


def without_same_results(messages: Sequence[JsonObject]) -> tuple[JsonObject, ...]:
    """Drop the tool results that are identical to an earlier result."""
    contents: list[JsonValue] = []
    remaining: list[JsonObject] = []
    for message in messages:
        is_result = message.get("role") == "tool"
        if not (is_result and message.get("content") in contents):
            remaining.append(message)
        contents += [message.get("content")] if is_result else []
    return tuple(remaining)


def flawed_text(
    flaw: Flaw,
    done: Executed,
    next_calls: Sequence[PlannedCall],
    profile: ModelProfile,
    *,
    draw: random.Random,
) -> str:
    """Return the text of a reply with a flaw; `next_calls` is empty if an answer would be right."""
    last, result = done[-1]
    form = draw.choice(profile.call_forms or (_BARE,))
    match flaw:
        case Flaw.ECHOED:
            return draw.choice(profile.result_forms).replace("{result}", result)
        case Flaw.INVENTED_RESULT | Flaw.RUNAWAY:
            call = next_calls[0] if next_calls and draw.random() < _NEW_CALL else last
            after = draw.choice(_INVENTED_RESULTS) if flaw is Flaw.INVENTED_RESULT else ""
            return f"{as_text(call, _BARE)}\n{after}"
        case Flaw.RECITED:
            blocks = "\n\nAnd:\n\n".join(as_text(call, _BLOCK) for call, _ in done)
            return f"To do this, you can use the following code:\n\n{blocks}"
        case Flaw.TAGGED:
            return "\n".join(as_text(call, _TAGGED) for call in next_calls)
        case _:
            calls = (last, *next_calls) if flaw is Flaw.MIXED else (last,)
            return "\n".join(as_text(call, form) for call in calls)


def with_placeholders(arguments: JsonObject, schema: JsonObject) -> JsonObject:
    """Replace each free text of a call with a placeholder, such as user@example.com."""
    properties = schema.get("properties")
    kinds = properties if isinstance(properties, dict) else {}
    free = {name for name, kind in kinds.items() if kind == {"type": "string"}}
    return {
        name: _PLACEHOLDERS.get(name, f"your_{name}") if name in free else value
        for name, value in arguments.items()
    }
