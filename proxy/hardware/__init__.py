"""What memory there is, and what of a model fits into it.

`snapshot` measures the host and its devices. `shape` reads what a model needs, `fit` how large a
window fits, `summary` words both. What is done about it is decided above.
"""
