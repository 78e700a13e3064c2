"""Reports about requests: a frozen record of each, and one small module per sink.

`live_request` follows a request while it runs and ends as a `record`, which the `observers` pass to
the sinks: `logs` for programs and terminals, `metrics` (listed in `metrics.toml`) and `tracing`,
which also creates the spans of agents' runs. `trace_context` parses and writes `traceparent`.
If exchanges are recorded, `exchange_recorder` collects them, `recording` writes them without
secrets, and `replay` runs the guardrails on them again.

For the dashboard, `board` has the running and latest requests as `rows`, and `history` counts all
requests. `sentences` describe the outcomes, in full there and in a few words on a terminal.
`peer_workers` connects the boards and counts of several workers.
"""
