"""Formats in which a model can be asked for calls: how each is described, and how it is read.

`hermes`, `mistral`, `gemma`, `react`, `json_contract` and, read as Qwen3-Coder's, `llama3`.
"""
