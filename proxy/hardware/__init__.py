"""The memory of a machine, and how much of it a model needs.

`snapshot` measures the host and its devices. `shape` reads a model's needs from its metadata,
`fit` computes the largest window, `summary` words the result.
"""
