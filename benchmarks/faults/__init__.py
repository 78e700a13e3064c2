"""Faults: masses of requests while backend and clients misbehave, and nothing may be lost."""
