"""Anthropic's Messages API for clients, and in `upstream` for engines.

- `table`: every name of the API and its handling
- `schema`: the wire format of a request
- `dialect`: converts requests to chat completions, with `history` (messages and blocks) and `tools`
- `encode`: answers as a stream or as a whole, and errors
- `models`: the list of models
"""
