"""A simulated model on a real HTTP server that makes errors at published rates.

`profiles` reads the rates, `draws` are the random numbers that all arms share, `request` is the
model's view of a prompt, `model` decides the reply, `renderings` words its errors
(`held_out_edits`: those of a second author, `small_models`: those after the first result of a
tool), `clock` is the time it takes, and `server` serves llama-server's API. No module here knows
about any proxy.
"""
