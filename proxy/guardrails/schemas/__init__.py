"""The caller's own JSON schemas, and values held against them.

`schema` compiles one, with `graph` and `workload` (what it would cost) before; `arguments` judges
the arguments of one call, or an answer in prose that has to be JSON, `members` one of them at a
time while they are written. `coercion` converts what has the wrong type where nothing is
lost; `violations` puts what stays wrong in words that a model can act on.
"""
