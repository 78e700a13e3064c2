"""The command line: `app` reads the flags, `commands` does what they ask for and prints.

`signals` says what Ctrl-C means while no event loop runs.
"""
