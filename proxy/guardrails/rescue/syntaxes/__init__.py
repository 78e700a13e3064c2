"""Reads calls in each format of `formats.toml`.

- JSON: `envelope` reads an object that is a call. `marked_json` and `named_json` read JSON after a
  mark. `plain_json` reads JSON in a code fence or without marks.
- tags: `tagged`, and `argument_pairs` for alternating keys and values
- `tool_names`: calls whose only mark is the name of an offered tool
- code or lines: `pythonic`, `mistral`, `gemma`
"""
