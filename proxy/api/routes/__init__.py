"""The endpoints: `chat` serves the requests that pass the guardrails.

`passthrough` forwards requests such as embeddings. `resources` lists models and stored responses;
`ollama` lists models for Ollama's clients. `monitoring` is for operators, and `ui` has the
dashboard and other pages.
"""
