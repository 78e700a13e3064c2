"""The front half of a request: prepare it, read replies, review them, retry.

`turn` is the table of it all; docs/turn.md goes with it. `preparation` makes the plan of a
request, `prepared` says what one attempt sends, `reply_reader` reads a reply (`length`: how long it
may become). `retry_budget` bounds retries over all requests.

`text_gate` and `call_gate` decide what the client sees before a reply is complete. `sent_answer` is
what it has seen.
"""
