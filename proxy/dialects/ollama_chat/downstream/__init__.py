"""Ollama's API for clients (decision 0028).

`dialect` reads requests to `/api/chat` and `/api/generate`, which `schema` validates by the rows of
`table.toml`. `encode` writes answers, and `resources` writes embeddings and the lists of models.
"""
