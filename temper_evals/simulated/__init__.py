"""A simulated model on a real HTTP server that makes errors at published rates.

- `profiles` reads the error rates, and `draws` are the random numbers that all arms share.
- `request` reads a request, and `model` decides the reply.
- `renderings` writes the text of flawed replies. `held_out_edits` has errors of a second author,
  and `small_models` has errors after the first result of a tool.
- `clock` computes the duration of a reply, and `server` serves llama-server's API.

No module here depends on the proxy's guardrails.
"""
