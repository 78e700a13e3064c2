"""Ollama's own API as clients speak it: `/api/chat` and `/api/generate`, and the lists of models.

`decode` reads requests by `schema` and `table`, `encode` writes answers, `models` what is served.
"""
