"""What is served, without HTTP: the models, what is known of them, and what a request needs.

`request_preparation` takes a request that was read to the turn that answers it, and those of a run
to one turn after the other. `services` are the models by name; of each,
`known_models` looks up what is known, with what was `tuned` for it, `admission` lets in as many
requests as there are slots, `context_fitting` keeps conversations inside the window.

`assembly` translates the settings into terms of requests and of services. `opening` opens what
they name, or finds a server that runs already: `managed_server` looks after a llama-server, and
says how large its window gets. `inventory` lists what could be asked, for `temper models`.
`tool_hosting` is what requests get of the operator's tools, `late_tools` keeps their servers going,
`tool_inventory` lists them.
"""
