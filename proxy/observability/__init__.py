"""What Temper reports about its requests: a frozen record of each, and one small file per sink.

`live_request` follows a request while it is alive and ends as a `record`, which the `observers`
get: `logs` for programs and terminals, `metrics` (listed in `metrics.toml`) and `tracing`, which
also makes the spans of agents' runs. `trace_context` is a request's place in a distributed trace.
If exchanges are recorded, `exchange_recorder` listens, `recording` writes without secrets, and
`replay` judges them again or shows what became of them.

For the dashboard, `board` has the running and latest requests as `rows`, and `history` counts them
all. `sentences` describe what happened, in full there and in a few words on a terminal.
`peer_workers` connects the boards and counts of several workers.
"""
