"""Temper within a program: guardrails for loops of others, and a server beside them.

`foreign` are the guardrails without any I/O, `sdk` what SDKs take and give; `background` is the
server in a thread.
"""
