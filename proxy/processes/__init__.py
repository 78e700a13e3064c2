"""Servers that Temper starts: planned, started, looked after, ended.

`process` is one child process (`log_tail` keeps its last lines, `parent_death` ends it with us;
for downloads it writes to a `pseudo_terminal`).
`llama_server` starts one as `launch` plans it, from what `model_file` (`gguf_header`) and
`devices` say; `start_progress` reads how far it has come, `failures` words what goes wrong, and
`embedded` is the one from PyPI. `download` has a model downloaded, `model_caches` lists those that
are there.

`supervisor` keeps one server going (`restarts` decides when it is tried again), `managed` is the
backend behind it, `remote_status` the view of another worker. `fleet` runs several of which not
all fit, as `swapping` decides.
"""
