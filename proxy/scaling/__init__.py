"""Temper on Ray Serve, which starts replicas and distributes requests.

`serve` is the application and the only module that imports ray. `arguments` parses the operator's
arguments. `scraping` publishes the metrics of every replica for Prometheus.
"""
