"""Temper on Ray Serve, which starts replicas and distributes requests.

`serve` is the application and the only module that imports ray, `arguments` reads the operator's
arguments, and `scraping` lets Prometheus discover and scrape every replica.
"""
