"""The textual forms of tool calls, one module for each family of them.

Calls in JSON: `envelope` knows the member names that models use; `marked_json` and `named_json`
have a mark before the JSON, `plain_json` a code fence or nothing. Calls as tags: `tagged` reads
them, `xml_tags` has the spelling of each family, `argument_pairs` reads alternating keys and
values. Calls by the tool's own name: `tool_names`. Code or lines: `pythonic`. Forms in which models
can be asked for calls are in `guardrails/formats`.
"""
