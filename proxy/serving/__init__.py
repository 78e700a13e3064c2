"""Models and requests without HTTP: the steps resolve, plan, fit and admit.

`request_preparation` resolves, plans and fits a request; `run_turns` does so for each turn of a run
with tools in between. `services` are the models by name; for each of them `admission` limits
concurrent requests to the slots, and `context_fitting` keeps conversations inside the window.
`rereading` explains why an engine read a prompt again.
`presets` are further names of a model, with their own defaults.

`assembly` translates the settings for requests and services. `opening` opens the configured
backends, or finds a running server; `managed_server` starts a llama-server and chooses its window.
`inventory` lists the models for `temper models`.
"""
