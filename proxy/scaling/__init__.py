"""Temper on an engine that distributes: it starts replicas and spreads requests, Temper does not.

`serve` is the application for Ray Serve and the only module that imports ray, `arguments` reads
what an operator gives it, and `scraping` lets Prometheus find and read every replica by itself.
"""
