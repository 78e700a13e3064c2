"""Wire languages, both directions: bytes to conversation and back. No I/O.

`front` is the contract of a language that clients speak. `reading` reads bodies as JSON objects
and `raw_json` as values with the bytes they were written in; `foreign_history` writes a history
in the language of backends. `json_schemas` describes one for the OpenAPI document, `handling` has
the words for what happens to a field of one, `pictures` reads inline ones. `wanted_tools` takes out
what asks for tools of the operator. `sse` and `ndjson` cut streams into events and lines. One
folder for each language.
"""
