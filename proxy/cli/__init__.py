"""The command line: `app` declares commands and flags, `commands` implements them.

`running` runs a command in an event loop and sets the exit code. `configuration` checks and prints
settings. `usage` loads commands (those of other packages from entry points), groups flags in the
help, and suggests corrections for typos.

`serve` announces the address of Temper. `terminal` shows the progress while Temper starts,
`status_line` shows the current activity, and `live_lines` shows the `running_requests` below the
log lines.

`output` and `safe_console` escape foreign text, so that it cannot control the terminal. `signals`
handles Ctrl-C outside of an event loop. `top` follows a running Temper and draws a `screen`.
`chat` is an interactive conversation with a model.
"""
