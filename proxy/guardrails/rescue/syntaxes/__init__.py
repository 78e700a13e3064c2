"""Reads calls in each format of `formats.toml`.

- JSON: `envelope` reads an object that is a call, `marked_json` and `named_json` JSON after a mark,
  and `plain_json` JSON in a code fence or without marks
- tags: `tagged`, and `argument_pairs` for alternating keys and values
- the name of an offered tool as the only mark: `tool_names`
- code or lines: `pythonic`, `mistral`, `gemma`
"""
