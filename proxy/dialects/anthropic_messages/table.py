"""Every name of the Messages API and its handling, from `table.toml`.

A test compares the tables with the types of Anthropic's SDK, and the guide with the tables. If a
name is in no table, it is newer than Temper: a field with this name is ignored, of a block only the
text is used, and a tool is refused.
"""

import re

from proxy.dialects.field_table import read_tables

_TABLES = read_tables("proxy.dialects.anthropic_messages")
# The rows of `TOOLS` are families of tools. A family is the type of a tool without its date.
FIELDS, BLOCKS, TOOLS = _TABLES["fields"], _TABLES["blocks"], _TABLES["tools"]

# error types by status; any other status is an `invalid_request_error` or an `api_error`
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
