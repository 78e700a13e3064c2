"""API dialects in both directions: bytes to conversation and back. No I/O.

One folder for each API. Shared modules:

- `dialect`: the contract of an API for clients
- `answer_blocks`: splits answers into blocks of text, reasoning and calls
- `raw_json`: JSON values with their source bytes and paths
- `wire_schema`: validation of requests, and the member `temper`
- `requested_tools`: removes the operator's tools from a request
- `field_table`: the handling of each name of an API
- `foreign_history`: converts histories to chat completions
- `lenient_json`: lenient reading of foreign JSON, and usage
- `engine_language`: the common part of writing requests to engines without chat completions
- `sse`, `lines`: server-sent events and NDJSON lines
"""
