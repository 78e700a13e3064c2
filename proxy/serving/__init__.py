"""Models, and the preparation of requests, without HTTP.

`request_preparation` resolves, plans and fits a request; `run_turns` plans and fits each turn of a
run in which Temper executes tools between the turns. `services` finds the model that a request
names. For each model, `admission` limits concurrent requests to the slots, and `context_fitting`
shortens conversations that exceed the window. If an engine read a prompt again instead of using
its cache, `rereading` finds the cause.
`presets` are additional names of a model with other defaults. `fallback` names another model,
which gets a request after all attempts at the requested model were rejected.

`assembly` translates the settings for requests and services. `opening` opens the configured
backends, or finds a running server; `managed_server` starts a llama-server and chooses its window.
`inventory` lists the models for `temper models`.
"""
