"""The HTTP server: routes, limits, error bodies and streaming. It knows no conversation rules.

`app` puts everything together and `dialects` is the table of languages and paths. A request comes
through `connections` (slow clients) to the `edge` (ids, hosts, keys, paths; `keys` reads their
file), which has `compressed_bodies` decompress its body and gives it its `client_connection`, and
through `idempotency`, behind which `shared_answers` asks other replicas. It is answered in
`routes/chat`: `request_reader` reads it, with the `documents` in it, `answer_source` gives the
events of a turn and `tool_run` those of several, where tools of the operator run in between; either
is brought to the client by `streaming`. `errors` says what a failure is. `connections` has
`request_head` check what the parser does not, and `half_closed` find out whether a client that has
finished sending still reads.

Around that: `hosted` opens it all and is an application for any server, `server` runs it in one
process and `workers` in several, `event_loop` says how, `assembly`, `observing` and
`response_keeping` translate the settings, `reloading` reads them again, `openapi` describes what is
plain ASGI. `watching` feeds the dashboard (`routes/ui`) with `feed_events`.
"""
