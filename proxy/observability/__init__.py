"""What leaves Temper about its requests: one frozen record each, and one small file per sink.

`live_request` follows a request while it is alive and ends as a `record`, which the `observers`
get: `logs` for programs and terminals, `metrics` (listed in `metric_table`) and `tracing`, which
also makes the spans of agents' runs. `trace_context` is a request's place in a distributed trace.
Where exchanges are recorded, `exchange_recorder` listens, `recording` writes without secrets, and
`replay` judges them again or shows what was made of them.

For the dashboard, the `board` has the requests that live and the latest ones as `rows`, and the
`history` of all of them; `sentences` say what happened, at length there and in a few words on a
terminal. One of several workers hears of the others from `peer_workers`.
"""
