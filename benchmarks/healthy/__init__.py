"""Healthy: the effect of Temper on replies that need no help, compared with a direct connection."""
