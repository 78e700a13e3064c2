"""The command line: `app` reads the flags, `commands` does what they ask for and prints.

`running` is how a command runs and ends. `configuration` checks and shows settings. `usage` finds
commands (those of other packages by entry points), lists flags in groups and names near misses;
`terminal` tells how far a start has come, and `status_line` what a command waits for.

`output` and `safe_console` print text of others so that it cannot control a terminal.

`signals` says what Ctrl-C means while no event loop runs. `top` follows a running Temper, and
`screen` is what it draws. `chat` talks with a model.
"""
