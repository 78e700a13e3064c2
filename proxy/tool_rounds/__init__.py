"""Rounds of tools: a model calls tools of ours, they are run, and it is asked again.

`run` is the machine that says what to do next (`steps`), on which `terms`, and what the client sees
of it (`client_view`); `events` is what it tells meanwhile. `outcomes` is what becomes of the calls
of one reply, `executor` the contract of whoever runs them. `transcript` is the conversation that
grows by all that.
"""
