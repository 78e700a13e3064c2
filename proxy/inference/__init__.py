"""From a planned request to its answer: send attempts, read replies, review them, retry.

`turn` is the state machine; docs/turn.md explains it. `driver` runs it against a backend, and its
`BackendPolicy` is the interface of objects that observe and stop replies. `preparation` plans a
request, and `plan` builds the upstream request of one attempt. `reply_reader` reads a reply, and
`length` limits its length. `retry_budget` limits the retries of all requests. `kept_reasoning`
restores the reasoning that clients drop from their history. `kept_rounds` restores the calls of
Temper's own tools, which clients never receive.

`text_gate` and `call_gate` decide which parts of an incomplete reply the client receives;
`sent_answer` stores those parts.
"""
