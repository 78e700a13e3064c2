"""The command line: `app` reads the flags, `commands` does what they ask for and prints.

`evaluating` is `temper eval`, which only asks what `evals` found.

`reference` writes pages of the documentation, `signals` says what Ctrl-C means while no event loop
runs.
"""
