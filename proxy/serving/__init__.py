"""What is served, without HTTP: the models, what is known of them, and what a request needs.

`request_preparation` leads from a request to the turn that answers it, or to the turns of a run.
`services` are the models by name; `admission` admits as many requests as there are slots, and
`context_fitting` keeps conversations inside the window.

`assembly` translates the settings for requests and services. `opening` opens what they name, or
finds a running server; `managed_server` starts a llama-server and chooses its window. `inventory`
lists the models for `temper models`.
"""
