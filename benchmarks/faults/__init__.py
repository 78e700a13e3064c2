"""Faults: a soak while backend and clients misbehave, and kills of processes under load."""
