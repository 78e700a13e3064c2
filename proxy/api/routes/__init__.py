"""The endpoints: `chat` serves the requests that pass the guardrails.

`passthrough` forwards completions and embeddings; `resources` lists models and stored
responses, and `ollama` does so for Ollama's clients. `monitoring` is for operators, and
`ui` has the dashboard and other pages.
"""
