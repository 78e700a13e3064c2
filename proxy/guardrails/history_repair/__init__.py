"""Repair an incoming history so that any backend and any chat template can read it.

`history` does it, with `pairing` of calls and results, and removes thoughts from it.
`refused_forms` rewrites what a particular engine or template has refused.
"""
