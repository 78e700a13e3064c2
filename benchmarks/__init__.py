"""Measurements outside the test suite: speed, faults, healthy replies, evidence, ablation."""
