"""Repairs the history of a request, so that every backend and every chat template can read it.

`history` is the interface of the package. It repairs the members of messages, adapts roles to the
template, and removes earlier reasoning. `pairing` matches calls and results. `refused_forms`
rewrites valid messages into the form that a particular engine or template accepts.
"""
