"""Every name of the Messages language and what happens to it: all decisions in one place.

A test holds the tables against the types of Anthropic's SDK, and the guide against the tables.
What stands in none of them is new: fields are ignored, blocks read for their text, tools refused.
"""

import re

from proxy.dialects.field_table import CARRIED, DROPPED, ENFORCED, IGNORED, FieldTable, refuse, rows

_STATELESS = "Temper runs no tools and keeps no state: send the tools and the whole history."
_SCHEMA_UNKNOWN = (
    "Only Anthropic's models know its schema. Offer it as a custom tool with a schema."
)
_NOTHING_RUNS_IT = (
    "It would have to be run by a server, and nothing here runs it. Leave it out, or offer a "
    "custom tool."
)

FIELDS = FieldTable(
    rows(CARRIED, "model messages max_tokens system tools stop_sequences thinking"),
    rows(CARRIED, "temperature top_p top_k"),
    rows(ENFORCED, "stream tool_choice output_config output_format temper metadata"),
    rows(IGNORED, "context_management compaction cache_control service_tier speed inference_geo"),
    rows(IGNORED, "diagnostics user_profile_id workspace_id billing_policy fallbacks"),
    rows(IGNORED, "fallback_credit_token betas tags"),
    rows(refuse("Nothing here checks safeguards: leave the field out."), "safeguards"),
    rows(refuse(_STATELESS), "mcp_servers container thread"),
)

BLOCKS = FieldTable(
    rows(CARRIED, "text image document search_result tool_use tool_result tool_reference"),
    rows(CARRIED, "thinking compaction"),
    rows(ENFORCED, "tool_addition tool_removal"),
    rows(DROPPED, "redacted_thinking server_tool_use web_search_tool_result web_fetch_tool_result"),
    rows(DROPPED, "code_execution_tool_result bash_code_execution_tool_result"),
    rows(DROPPED, "text_editor_code_execution_tool_result tool_search_tool_result"),
    rows(DROPPED, "advisor_tool_result mcp_tool_use mcp_tool_result mcp_tool_listing"),
    rows(DROPPED, "container_upload browser_state fallback"),
)

# by family: the name of a typed tool without its date
TOOLS = FieldTable(
    rows(CARRIED, "custom"),
    rows(DROPPED, "tool_search_tool_bm25 tool_search_tool_regex"),
    rows(refuse(_SCHEMA_UNKNOWN), "bash text_editor memory computer"),
    rows(refuse(_SCHEMA_UNKNOWN), "computer_toolset browser_toolset"),
    rows(refuse(_NOTHING_RUNS_IT), "web_search web_fetch code_execution mcp_toolset advisor"),
    unknown=refuse(_NOTHING_RUNS_IT),
)

# what errors are called by their status, beside `invalid_request_error` and `api_error`
ERRORS = {
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
    529: "overloaded_error",
}

_DATED = re.compile(r"_\d{8}\Z")


def family_of(tool_type: str) -> str:
    return _DATED.sub("", tool_type)
