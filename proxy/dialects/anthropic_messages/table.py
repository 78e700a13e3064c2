"""Every name of the Messages language and what happens to it: all decisions in one place.

A test holds the tables against the types of Anthropic's SDK, and the guide against the tables.
What stands in none of them is new: fields are ignored, blocks read for their text, tools refused.
"""

import re
from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType


class Handling(Enum):
    """What happens to a part of a request; the value is the guide's word for it."""

    CARRIED = "carried"  # goes to the backend, in the language of chat completions
    ENFORCED = "enforced"  # done here
    IGNORED = "ignored"  # accepted without effect
    DROPPED = "dropped"  # left out, and reported; text that it carries in the open is kept
    REFUSED = "refused"  # 400, with a remedy


FIELDS: Mapping[str, Handling] = MappingProxyType(
    {
        "model": Handling.CARRIED,
        "messages": Handling.CARRIED,
        "max_tokens": Handling.CARRIED,
        "system": Handling.CARRIED,
        "stream": Handling.ENFORCED,
        "tools": Handling.CARRIED,
        "tool_choice": Handling.ENFORCED,
        "stop_sequences": Handling.CARRIED,
        "temperature": Handling.CARRIED,
        "top_p": Handling.CARRIED,
        "top_k": Handling.CARRIED,
        "thinking": Handling.CARRIED,
        "output_config": Handling.ENFORCED,
        "output_format": Handling.ENFORCED,
        "temper": Handling.ENFORCED,
        "metadata": Handling.ENFORCED,
        "context_management": Handling.IGNORED,
        "compaction": Handling.IGNORED,
        "cache_control": Handling.IGNORED,
        "service_tier": Handling.IGNORED,
        "speed": Handling.IGNORED,
        "inference_geo": Handling.IGNORED,
        "diagnostics": Handling.IGNORED,
        "user_profile_id": Handling.IGNORED,
        "workspace_id": Handling.IGNORED,
        "billing_policy": Handling.IGNORED,
        "fallbacks": Handling.IGNORED,
        "fallback_credit_token": Handling.IGNORED,
        "betas": Handling.IGNORED,
        "tags": Handling.IGNORED,
        "safeguards": Handling.REFUSED,
        "mcp_servers": Handling.REFUSED,
        "container": Handling.REFUSED,
        "thread": Handling.REFUSED,
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

BLOCKS: Mapping[str, Handling] = MappingProxyType(
    {
        "text": Handling.CARRIED,
        "image": Handling.CARRIED,
        "document": Handling.CARRIED,
        "search_result": Handling.CARRIED,
        "tool_use": Handling.CARRIED,
        "tool_result": Handling.CARRIED,
        "tool_reference": Handling.CARRIED,
        "thinking": Handling.CARRIED,
        "compaction": Handling.CARRIED,
        "tool_addition": Handling.ENFORCED,
        "tool_removal": Handling.ENFORCED,
        "redacted_thinking": Handling.DROPPED,
        "server_tool_use": Handling.DROPPED,
        "web_search_tool_result": Handling.DROPPED,
        "web_fetch_tool_result": Handling.DROPPED,
        "code_execution_tool_result": Handling.DROPPED,
        "bash_code_execution_tool_result": Handling.DROPPED,
        "text_editor_code_execution_tool_result": Handling.DROPPED,
        "tool_search_tool_result": Handling.DROPPED,
        "advisor_tool_result": Handling.DROPPED,
        "mcp_tool_use": Handling.DROPPED,
        "mcp_tool_result": Handling.DROPPED,
        "mcp_tool_listing": Handling.DROPPED,
        "container_upload": Handling.DROPPED,
        "browser_state": Handling.DROPPED,
        "fallback": Handling.DROPPED,
    }
)

# by family: the name of a typed tool without its date
TOOLS: Mapping[str, Handling] = MappingProxyType(
    {
        "custom": Handling.CARRIED,
        "tool_search_tool_bm25": Handling.DROPPED,
        "tool_search_tool_regex": Handling.DROPPED,
        "bash": Handling.REFUSED,
        "text_editor": Handling.REFUSED,
        "memory": Handling.REFUSED,
        "computer": Handling.REFUSED,
        "computer_toolset": Handling.REFUSED,
        "browser_toolset": Handling.REFUSED,
        "web_search": Handling.REFUSED,
        "web_fetch": Handling.REFUSED,
        "code_execution": Handling.REFUSED,
        "mcp_toolset": Handling.REFUSED,
        "advisor": Handling.REFUSED,
    }
)
RUN_BY_CLIENTS = frozenset(
    {"bash", "text_editor", "memory", "computer", "computer_toolset", "browser_toolset"}
)

_IGNORED_TOOL_MEMBERS = (
    "cache_control", "input_examples", "allowed_callers", "eager_input_streaming"
)  # fmt: skip
TOOL_MEMBERS: Mapping[str, Handling] = MappingProxyType(
    {
        "type": Handling.ENFORCED,
        "name": Handling.CARRIED,
        "description": Handling.CARRIED,
        "input_schema": Handling.CARRIED,
        "strict": Handling.CARRIED,
        "defer_loading": Handling.ENFORCED,
        **dict.fromkeys(_IGNORED_TOOL_MEMBERS, Handling.IGNORED),
    }
)

CHOICES: Mapping[str, Handling] = MappingProxyType(
    dict.fromkeys(("auto", "any", "tool", "none"), Handling.ENFORCED)
)

# what a stream may hold: carried is what answers are made of, ignored what they never need
EVENTS: Mapping[str, Handling] = MappingProxyType(
    {
        "message_start": Handling.CARRIED,
        "content_block_start": Handling.CARRIED,
        "content_block_delta": Handling.CARRIED,
        "content_block_stop": Handling.CARRIED,
        "message_delta": Handling.CARRIED,
        "message_stop": Handling.CARRIED,
        "text_delta": Handling.CARRIED,
        "thinking_delta": Handling.CARRIED,
        "signature_delta": Handling.CARRIED,
        "input_json_delta": Handling.CARRIED,
        "citations_delta": Handling.IGNORED,
        "compaction_delta": Handling.IGNORED,
    }
)

STOP_REASONS: Mapping[str, Handling] = MappingProxyType(
    {
        "end_turn": Handling.CARRIED,
        "tool_use": Handling.CARRIED,
        "max_tokens": Handling.CARRIED,
        "refusal": Handling.CARRIED,
        "stop_sequence": Handling.IGNORED,
        "model_context_window_exceeded": Handling.IGNORED,
        "pause_turn": Handling.IGNORED,
        "compaction": Handling.IGNORED,
    }
)

_DATED = re.compile(r"_\d{8}\Z")


def family_of(tool_type: str) -> str:
    """Return the name of a typed tool without its date."""
    return _DATED.sub("", tool_type)
