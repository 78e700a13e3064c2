"""The command line: `app` reads the flags, `commands` does what they ask for and prints.

`terminal` tells how far a start has come, `signals` what Ctrl-C means while no event loop runs.
"""
