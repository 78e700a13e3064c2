"""HTTP out: how a question is put to an engine, and what its answers and errors mean.

`client` is the contract of a backend, and of one in front of another. `http_backend` is what all
engines have in common; an adapter adds how it is asked and read:

- `openai_compatible`: any engine that speaks chat completions. `adaptive` goes without what one
  lacks (`capabilities`, and `engines` lists who lacks what); `llama_server` is one with extras
- `ollama` (`ollama_models`) and `anthropic`: engines with a language of their own

`detection` finds out what answers at an address. Each asks through `transport`, with a
`connection_pool` (`connecting`, `arriving`). Replies are read by `reply_reading`, errors by
`refusals`; `counting` counts tokens.

Several servers are one `pool`: `affinity` says who has a prompt cached, `breaker` when a broken one
is asked again.
"""
