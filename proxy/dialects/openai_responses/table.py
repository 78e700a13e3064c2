"""What happens to everything a request may hold, as `table.toml` says.

One table for the code, the guide and the test that holds it against the types of OpenAI's SDK. What
stands in no table is ignored, as clients add fields in every release; tools are the exception.
"""

from proxy.dialects.field_table import read_tables

_TABLES = read_tables("proxy.dialects.openai_responses")
FIELDS, ITEMS, TOOLS = _TABLES["fields"], _TABLES["items"], _TABLES["tools"]
