"""Faults: a soak with thousands of requests while backend and clients misbehave."""
