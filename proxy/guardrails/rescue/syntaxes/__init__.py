"""The readers of formats, one module for each family of shapes.

Calls in JSON: `envelope` knows the member names that models use; `marked_json` and `named_json`
have a mark before the JSON, `plain_json` a code fence or nothing. Calls as tags: `tagged`;
`argument_pairs` reads alternating keys and values. Calls by the tool's own name: `tool_names`. Code
or lines: `pythonic`, `mistral`, `gemma`.
"""
