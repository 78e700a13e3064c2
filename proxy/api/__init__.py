"""The HTTP server: routes, limits, error bodies and streaming. It knows no conversation rules.

`app` composes everything, and `dialects` is the table of API dialects and paths. `connections`
parses a request; `request_head` checks its head, and `half_closed` distinguishes half-closed
clients from disconnected ones. The `edge` authenticates the request with the keys that `keys` has
read, decompresses the body (`compressed_bodies`) and creates the request's `client_connection`.
`routes/chat` lists the later steps: `request_reader` reads the body and the PDFs in it
(`documents`), `answer` runs one turn, and `streaming` writes to the client. Requests that may call
the operator's tools use `tool_run` instead of `answer`; it runs several turns, and the tools
between the turns. `fallback` sends a turn to another model after all attempts were rejected.
`errors` maps failures to HTTP. Requests with an idempotency key pass `idempotency`, and
`shared_answers` if replicas share a store.

`hosted` opens all of this, and is an application for any ASGI server; `server` runs it in one
process and `workers` in several. `event_loop` chooses the loop. `assembly`, `observing` and
`response_keeping` translate the settings, and `reloading` reads the settings again. `openapi`
describes the endpoints that FastAPI does not see. `watching` feeds the dashboard (`routes/ui`) with
`feed_events`.
"""
