"""HTTP clients of engines: how to send a question, and what replies and errors mean.

`client` is the contract of a backend and of a wrapper. `http_backend` has what all engines share;
an adapter adds its own requests and replies:

- `openai_compatible`: any engine that speaks chat completions, and is recognised (`engines` lists
  what each lacks); `llama_server` uses its extras
- `ollama` (`ollama_models`) and `anthropic`: engines with a language of their own

`detection` finds out what answers at an address. Each asks through `transport`, with a
`connection_pool`. `refusals` reads errors, `counting` counts tokens. `capabilities` has what
engines lack or refuse, and what is asked instead; `probing` sees by their answers what they honour.

Several servers form a `pool`: `affinity` chooses the one that has the prompt cached, `breaker` says
when to try a failed one again.
"""
