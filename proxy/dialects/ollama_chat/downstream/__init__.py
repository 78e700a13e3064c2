"""Ollama's own API as clients speak it: `dialect` has `/api/chat` and `/api/generate`.

It reads requests, which `schema` checks, by the rows of `table.toml`; `encode` writes answers, and
`resources` what clients look up beside them.
"""
