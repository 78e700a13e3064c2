"""Ollama's own chat language, as a backend speaks it; `downstream` is what clients speak.

`encode` writes a question with `fields`, which has the table of them; `decode` reads the lines of a
reply.
"""
