"""The front half of a request: prepare it, read replies, review them, retry.

`turn` is the state machine; docs/turn.md explains it. `preparation` plans a request, `plan`
says what one attempt sends, `reply_reader` reads a reply, `length` bounds it. `retry_budget` bounds
the retries of all requests.

`text_gate` and `call_gate` decide what the client sees before a reply is complete. `sent_answer`
records what it has seen.
"""
