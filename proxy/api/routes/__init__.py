"""The endpoints: `chat` serves the requests that pass the guardrails.

`passthrough` forwards completions and embeddings; `resources` tells clients which models and kept
responses there are, `monitoring` is for operators, and `ui` has the dashboard and other pages.
"""
