"""Logs, metrics, traces and the dashboard's data, all made from one record per request.

`live_request` collects times and attempts while a request runs and then makes its `record`. The
`observers` pass the record to the sinks: `logs`, `metrics` (listed in `metrics.toml`) and
`tracing`, which also creates the spans of agents' runs. `trace_context` parses `traceparent`.
If exchanges are recorded, `exchange_recorder` collects them, `recording` writes them without
secrets, and `replay` runs the guardrails on them again.

For the dashboard, `board` has the running and latest requests as `rows`, and `history` counts all
requests. `sentences` describes each repair and retry: in a sentence for the dashboard, in a few
words for a log line. `peer_workers` connects the boards and counts of several workers.
`standard_error` writes log lines in a thread, because a paused terminal blocks writes.
"""
