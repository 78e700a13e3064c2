"""Mend an incoming history so that any backend and any chat template can read it.

`history` does it, with `pairing` (calls and results), and takes thoughts out of it.
"""
