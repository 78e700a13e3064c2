"""Temper within a program: guardrails for loops of others.

`foreign` are the guardrails without any I/O, `sdk` what SDKs take and give.
"""
