"""Every member and option of a request and what happens to it, as `table.toml` says.

A test holds the tables against the types of ollama-python, and the guide against the tables.
"""

from proxy.dialects.field_table import read_tables

_TABLES = read_tables("proxy.dialects.ollama_chat.downstream")
FIELDS, OPTIONS = _TABLES["fields"], _TABLES["options"]
