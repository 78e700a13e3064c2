"""Servers that Temper starts: planned, started, looked after, ended.

`process` is one child process; `parent_death` ends it with us. `llama_server` starts one as
`launch` plans it, from what `model_file` says, has it download a model, and words what goes wrong;
`start_progress` reads how far it has come, and `embedded` is the one from PyPI. `model_caches`
lists the models that are there.
`pdf_text` is a process of its own that reads what clients send.

`supervisor` keeps one server going (`restarts` decides when it is tried again), `managed` is the
backend behind it. `fleet` runs several of which not all fit, as `swapping` decides.
"""
