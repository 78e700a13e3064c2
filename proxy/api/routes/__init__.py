"""The endpoints: `chat` serves the requests that pass the guardrails.

`passthrough` forwards completions and embeddings; `resources` tells clients which models and kept
responses there are, and `ollama` does so for Ollama's clients. `monitoring` is for operators, and
`ui` has the dashboard and other pages.
"""
