"""The endpoints: `chat` serves the requests that pass the guardrails.

`responses` serves kept responses; `passthrough` forwards completions and embeddings;
`models` and `properties` tell clients what there is, `documentation` which routes, `health` and
`metrics` tell operators, `ui` shows them the dashboard. `root` links to all of them.
"""
