"""Formats in which a model can be asked for calls: how each is described, and how it is read.

`hermes`, `mistral`, `gemma`, `react` and `json_contract`.
"""
