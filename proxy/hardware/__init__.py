"""The memory of a machine, and how much of it a model needs.

`snapshot` measures the memory of the host and of its devices. `shape` reads the relevant dimensions
of a model from its metadata, `fit` computes the largest window, and `summary` formats the result.
"""
