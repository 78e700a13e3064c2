"""Finds answers that show the user the JSON of a call or the raw result of a tool."""

import re
from collections.abc import Sequence

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from temper_evals.scenarios.scenario import Transcript
from temper_evals.scenarios.worlds import tool_name

_RESULT_MARKUP = re.compile(r"</?\|?(?:tool|function)_(?:response|result|output)s?\|?>")
_FENCE = re.compile(r"\A```\w*\n(.*)\n```\Z", re.DOTALL)


def objection_to_raw(
    answer: str, transcript: Transcript, tools: Sequence[JsonObject], *, may_quote: bool = False
) -> str:
    """Describe the raw content in an answer; "" if it has none.

    Raw content is the JSON of a call (unless the answer `may_quote` a call), the markup of a
    result, or a result's JSON as the whole answer.
    """
    if _RESULT_MARKUP.search(answer):
        return "the answer shows the markup of a result"
    names = "|".join(re.escape(tool_name(tool)) for tool in tools)
    call = rf'"name"\s*:\s*"(?:{names})"\s*,\s*"(?:arguments|parameters)"\s*:'
    if names and not may_quote and re.search(call, answer):
        return "the answer shows a call as JSON"
    value = _container(_FENCE.sub(r"\1", answer.strip()))
    results = [
        str(message.get("content")) for message in transcript if message.get("role") == "tool"
    ]
    if value is not None and any(_container(result) == value for result in results):
        return "the answer is the JSON of a result"
    return ""


def _container(text: str) -> JsonValue:
    """Parse an object or an array; None if the text is anything else."""
    try:
        value = json.parse(text)
    except ValueError:
        return None
    return value if isinstance(value, dict | list) else None
