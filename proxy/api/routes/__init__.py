"""The endpoints: `chat` is the way of a request that the guardrails watch.

`responses` is what stands beside new responses; `passthrough` passes completions and embeddings on;
`models` and `properties` tell clients what there is, `documentation` which routes, `health` and
`metrics` tell operators, `ui` shows them the dashboard. `root` says where all of that is.
"""
