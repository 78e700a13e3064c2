"""Healthy: what Temper does to replies that need no help, beside the same replies without it."""
