"""HTTP out: how a question is put to an engine, and what its answers and errors mean.

`client` is the contract of a backend. Four kinds keep it: `openai_compatible` for any engine
that speaks chat completions (`engines` lists them with their `capabilities`; `adaptive` goes
without what one lacks, `directives` are the fields at stake), `llama_server` on top of it,
`ollama` (`ollama_models`, `ollama_refusals`) and `anthropic` (`anthropic_refusals`).
`streamed_reply` reads what comes in a language of the last two. `detection` finds out which of
the first three it is, `detected` is a backend found so.

Each asks through `transport`: an `address`, a `connection_pool` (`connecting`, `arriving`,
`unpacking`), `confidential` keys. Answers are read by `reply_reading`, refusals by `refusals` and
`overflow`; `counting` counts tokens, `relaying` passes on.

Several servers are one `pool`: `affinity` says who has a prompt cached, `member_health` whom to
ask next, `breaker` when a broken one is asked again. `wrapper` is a backend in front of another.
"""
