"""The command line: `app` reads the flags, `commands` does what they ask for and prints.

`top` follows a running Temper, and `screen` is what it draws. `signals` says what Ctrl-C means
while no event loop runs.
"""
