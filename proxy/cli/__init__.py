"""The command line: `app` reads the flags, `commands` does what they ask for and prints.

`configuration` checks and shows settings, `usage` lists flags in groups and names near misses, and
`terminal` tells how far a start has come. `reference` writes pages of the documentation, `signals`
says what Ctrl-C means while no event loop runs.
"""
