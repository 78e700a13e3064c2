"""HTTP in: routes, limits, error bodies and streaming. It decides nothing about a conversation.

`app` puts everything together and `fronts` is the table of languages and paths. A request passes
`connections` (dawdling clients), `limits` (ids, hosts, keys; `keys` reads their file, `headers`
sorts them out), `fast_routes` and `idempotency`, behind which `shared_answers` asks other replicas,
and is answered in `routes/chat`:
`request_reader` reads it, `loading_stream` keeps the client company while a model loads,
`exchange` brings a turn's events to the wire by `streaming`, `tool_exchange` those of several where
tools of the operator run in between, `errors` says what a failure is.

Around that: `hosted` opens it all and is an application for any server, `server` runs it in one
process and `workers` in several, `event_loop` says how, `assembly`, `observing`, `shared_state` and
`response_keeping` translate the settings, `reloading` reads them again, `openapi` describes what is
plain ASGI, `header_table` lists headers, `warming` prepares what the first requests would have to
wait for. `cancelling` ends requests for an operator and with the server, `watching` feeds the
dashboard (`routes/ui`) with `feed_events`.
"""
