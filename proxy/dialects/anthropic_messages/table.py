"""Every name of the Messages language and what happens to it: all decisions in one place.

A test holds the tables against the types of Anthropic's SDK, and the guide against the tables.
What stands in none of them is new: fields are ignored, blocks read for their text, tools refused.
"""

import re
from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType


class Fate(Enum):
    """What happens to a part of a request; the value is the guide's word for it."""

    CARRIED = "carried"  # goes to the backend, in the language of chat completions
    ENFORCED = "enforced"  # done here
    IGNORED = "ignored"  # accepted without effect
    DROPPED = "dropped"  # left out, and reported; text that it carries in the open is kept
    REFUSED = "refused"  # 400, with a remedy


FIELDS: Mapping[str, Fate] = MappingProxyType(
    {
        "model": Fate.CARRIED,
        "messages": Fate.CARRIED,
        "max_tokens": Fate.CARRIED,
        "system": Fate.CARRIED,
        "stream": Fate.ENFORCED,
        "tools": Fate.CARRIED,
        "tool_choice": Fate.ENFORCED,
        "stop_sequences": Fate.CARRIED,
        "temperature": Fate.CARRIED,
        "top_p": Fate.CARRIED,
        "top_k": Fate.CARRIED,
        "thinking": Fate.CARRIED,
        "output_config": Fate.ENFORCED,
        "output_format": Fate.ENFORCED,
        "temper": Fate.ENFORCED,
        "metadata": Fate.IGNORED,
        "context_management": Fate.IGNORED,
        "compaction": Fate.IGNORED,
        "cache_control": Fate.IGNORED,
        "service_tier": Fate.IGNORED,
        "speed": Fate.IGNORED,
        "inference_geo": Fate.IGNORED,
        "diagnostics": Fate.IGNORED,
        "user_profile_id": Fate.IGNORED,
        "workspace_id": Fate.IGNORED,
        "billing_policy": Fate.IGNORED,
        "fallbacks": Fate.IGNORED,
        "fallback_credit_token": Fate.IGNORED,
        "betas": Fate.IGNORED,
        "tags": Fate.IGNORED,
        "safeguards": Fate.REFUSED,
        "mcp_servers": Fate.REFUSED,
        "container": Fate.REFUSED,
        "thread": Fate.REFUSED,
    }
)

_STATELESS = "Temper runs no tools and keeps no state: send the tools and the whole history."
REMEDIES: Mapping[str, str] = MappingProxyType(
    {
        "safeguards": "Nothing here checks safeguards: leave the field out.",
        "mcp_servers": _STATELESS,
        "container": _STATELESS,
        "thread": _STATELESS,
    }
)

BLOCKS: Mapping[str, Fate] = MappingProxyType(
    {
        "text": Fate.CARRIED,
        "image": Fate.CARRIED,
        "document": Fate.CARRIED,
        "search_result": Fate.CARRIED,
        "tool_use": Fate.CARRIED,
        "tool_result": Fate.CARRIED,
        "tool_reference": Fate.CARRIED,
        "thinking": Fate.CARRIED,
        "compaction": Fate.CARRIED,
        "tool_addition": Fate.ENFORCED,
        "tool_removal": Fate.ENFORCED,
        "redacted_thinking": Fate.DROPPED,
        "server_tool_use": Fate.DROPPED,
        "web_search_tool_result": Fate.DROPPED,
        "web_fetch_tool_result": Fate.DROPPED,
        "code_execution_tool_result": Fate.DROPPED,
        "bash_code_execution_tool_result": Fate.DROPPED,
        "text_editor_code_execution_tool_result": Fate.DROPPED,
        "tool_search_tool_result": Fate.DROPPED,
        "advisor_tool_result": Fate.DROPPED,
        "mcp_tool_use": Fate.DROPPED,
        "mcp_tool_result": Fate.DROPPED,
        "mcp_tool_listing": Fate.DROPPED,
        "container_upload": Fate.DROPPED,
        "browser_state": Fate.DROPPED,
        "fallback": Fate.DROPPED,
    }
)

# by family: the name of a typed tool without its date
TOOLS: Mapping[str, Fate] = MappingProxyType(
    {
        "custom": Fate.CARRIED,
        "tool_search_tool_bm25": Fate.DROPPED,
        "tool_search_tool_regex": Fate.DROPPED,
        "bash": Fate.REFUSED,
        "text_editor": Fate.REFUSED,
        "memory": Fate.REFUSED,
        "computer": Fate.REFUSED,
        "computer_toolset": Fate.REFUSED,
        "browser_toolset": Fate.REFUSED,
        "web_search": Fate.REFUSED,
        "web_fetch": Fate.REFUSED,
        "code_execution": Fate.REFUSED,
        "mcp_toolset": Fate.REFUSED,
        "advisor": Fate.REFUSED,
    }
)
RUN_BY_CLIENTS = frozenset(
    {"bash", "text_editor", "memory", "computer", "computer_toolset", "browser_toolset"}
)

_IGNORED_TOOL_MEMBERS = (
    "cache_control", "input_examples", "allowed_callers", "eager_input_streaming"
)  # fmt: skip
TOOL_MEMBERS: Mapping[str, Fate] = MappingProxyType(
    {
        "type": Fate.ENFORCED,
        "name": Fate.CARRIED,
        "description": Fate.CARRIED,
        "input_schema": Fate.CARRIED,
        "strict": Fate.CARRIED,
        "defer_loading": Fate.ENFORCED,
        **dict.fromkeys(_IGNORED_TOOL_MEMBERS, Fate.IGNORED),
    }
)

CHOICES: Mapping[str, Fate] = MappingProxyType(
    dict.fromkeys(("auto", "any", "tool", "none"), Fate.ENFORCED)
)

# what a stream may hold: carried is what answers are made of, ignored what they never need
EVENTS: Mapping[str, Fate] = MappingProxyType(
    {
        "message_start": Fate.CARRIED,
        "content_block_start": Fate.CARRIED,
        "content_block_delta": Fate.CARRIED,
        "content_block_stop": Fate.CARRIED,
        "message_delta": Fate.CARRIED,
        "message_stop": Fate.CARRIED,
        "text_delta": Fate.CARRIED,
        "thinking_delta": Fate.CARRIED,
        "signature_delta": Fate.CARRIED,
        "input_json_delta": Fate.CARRIED,
        "citations_delta": Fate.IGNORED,
        "compaction_delta": Fate.IGNORED,
    }
)

STOP_REASONS: Mapping[str, Fate] = MappingProxyType(
    {
        "end_turn": Fate.CARRIED,
        "tool_use": Fate.CARRIED,
        "max_tokens": Fate.CARRIED,
        "refusal": Fate.CARRIED,
        "stop_sequence": Fate.IGNORED,
        "model_context_window_exceeded": Fate.IGNORED,
        "pause_turn": Fate.IGNORED,
        "compaction": Fate.IGNORED,
    }
)

_DATED = re.compile(r"_\d{8}\Z")


def family_of(tool_type: str) -> str:
    """Return the name of a typed tool without its date."""
    return _DATED.sub("", tool_type)
