"""Ollama's own chat language, spoken by one backend; no client of ours speaks it.

`schema` is the table of what happens to each field. `encode` writes a question with `fields`,
`messages` and `tools`; `decode` reads the lines of a reply.
"""
