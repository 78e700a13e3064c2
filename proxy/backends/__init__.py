"""HTTP clients of engines: send upstream requests, and interpret replies and errors.

    connection_pool ─► transport ─► http_backend + adapter ─► pool ─► policies ─► turn
    HTTP/1.1           headers,     API and capabilities      fail-   learning,
                       timeouts     of one engine             over    recording

`client` is the contract of a backend. `connection_pool` speaks HTTP/1.1 to one server, `transport`
adds headers, timeouts and size limits. `http_backend` is common to all engines; an adapter adds the
API of an engine:

- `openai_compatible`: any engine with chat completions (`engines` lists the known engines);
  `llama_server` uses the extensions of llama.cpp
- `ollama` (`ollama_models`) and `anthropic`: engines with a separate API

`detection` recognizes the engine at an address. `refusals` reads errors, `counting` counts tokens.
`capabilities` lists the features that engines lack or refuse, with the substitute for each, and
`probing` tests which fields an engine honors.

Several servers form a `pool`: `affinity` chooses the server that has the prompt cached, and
`breaker` decides when to try a failed server again. `learning` learns the length of prompts.
"""
