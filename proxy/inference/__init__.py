"""The front half of a request: prepare it, read replies, review them, retry.

`turn` is the table of it all; docs/turn.md goes with it. `preparation` makes the plan of a
request, `prepared` with its `prompt_format` says what one attempt sends, `reply_reader` reads a
reply (`coalescing`: what arrived at once; `length`: how long it may become), `candidates` keeps
what rejected replies would make. `budget` bounds retries over all requests, `usage` adds up what
they cost.

`stream_gate/` decides what the client sees before a reply is complete. `sent_answer` is what it has
seen.
"""
