"""Rounds of tools: a model calls tools of ours, they are run, and it is asked again.

`run` is the machine that says what to do next, on which `terms`, and what the client sees of it.
`executor` is the contract of whoever runs tools, and what becomes of the calls. `transcript` is the
conversation that grows by all that.
"""
