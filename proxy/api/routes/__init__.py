"""The endpoints: `chat` serves the requests that pass the guardrails.

`responses` serves kept responses; `passthrough` forwards completions and embeddings;
`models` tells clients what there is, `monitoring` is for operators, `ui` shows them the dashboard.
`root` links to all of them.
"""
