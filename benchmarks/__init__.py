"""Measurements that are no tests: how much is rescued, and how fast."""
