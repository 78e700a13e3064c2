"""What leaves Temper about its requests: one frozen record each, and one small file per sink.

`live_request` follows a request while it is alive and ends as a `record`, which the `observers`
get: `logs`, `metrics` (listed in `metric_table`), `tracing` (`trace_context`, `span_names`), beside
which `run_spans` are those of agents in programs. On terminals logs are `short_lines`;
`escaping` makes what others wrote harmless. `replica` names this process among others in logs and
traces.
Where exchanges are recorded, `exchange_recorder` listens, `recording` writes, `redaction` takes
secrets out, and `replay` judges them again, by the `replayed_turns`.

For the dashboard, the `board` has the requests that live and the latest ones as `rows`, and the
`history` of all of them; `sentences` say what happened, at length there and in a few words on a
terminal. `kept_exchanges` are the latest recorded ones, and `before_after` shows one.
One of several workers hears of the others from `peer_workers`. `tool_server_cards` are what
there is to see of tool servers.
"""
