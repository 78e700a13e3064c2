"""Measurements outside of the test suite: speed, faults, healthy replies, evidence, ablation."""
