"""The command line: `app` reads the flags, `commands` does what they ask for and prints.

`reference` writes pages of the documentation, `signals` says what Ctrl-C means while no event loop
runs.
"""
