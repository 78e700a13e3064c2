"""The front half of a request: prepare it, listen to replies, review them, retry.

`turn` is the table of it all; docs/turn.md goes with it. `preparation` makes the plan of a
request, `prepared` with its `prompt_format` says what one attempt sends, `listening` hears a
reply (`together`: what arrived at once; `length`: how long it may become), `candidates` keeps
what rejected replies would make. `budget` bounds retries over all requests, `spending` adds up
what they cost.

What the client sees before a reply is complete: `release`, `calls_release` and
`arguments_release`; `watched_release` keeps a call that no reader knows from it. `shown` is what it
has seen, `audience` takes content at once.
"""
