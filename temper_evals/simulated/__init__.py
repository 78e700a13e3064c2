"""A simulated model behind real HTTP, which errs at rates that others have published.

`profiles` reads the rates, `draws` is the luck that all arms share, `request` is what a prompt
shows, `model` decides the reply, `renderings` words its flaws (`held_out_edits`: those of a second
author, `small_models`: those after the first result of a tool), `clock` is what time it takes, and
`server` speaks llama-server's language. Nothing here knows of any proxy.
"""
