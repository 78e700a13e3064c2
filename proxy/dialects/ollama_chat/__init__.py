"""Ollama's own chat language, spoken by one backend; no client of ours speaks it.

`encode` writes a question with `fields`, which has the table of them; `decode` reads the lines of a
reply.
"""
