"""Mend an incoming history so that any backend and any chat template can read it."""
