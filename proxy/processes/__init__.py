"""Servers that Temper starts: planned, started, looked after, ended.

`process` is one child process (`log_tail` keeps its last lines, `parent_death` ends it with us).
`llama_server` starts one as `launch` plans it, from what `model_file` (`gguf_header`) and
`devices` say; `embedded` is the one from PyPI, `failures` words what goes wrong.

`supervisor` keeps one server going (`restarts` decides when it is tried again), `managed` is the
backend behind it, `remote_status` the view of another worker. `fleet` runs several of which not
all fit, as `swapping` decides.
"""
