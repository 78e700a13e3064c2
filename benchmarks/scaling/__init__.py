"""Scaling: what Temper costs on Ray Serve, and the cluster of this machine that tests use too."""
