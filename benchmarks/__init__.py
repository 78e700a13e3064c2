"""Measurements that are no tests: how much is rescued, how fast, and what faults do."""
