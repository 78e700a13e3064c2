"""Rounds of tools: a model calls tools of ours, they are run, and it is asked again.

`outcomes` is what becomes of the calls of one reply, `executor` the contract of whoever runs them.
"""
