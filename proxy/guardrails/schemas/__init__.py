"""The caller's own JSON schemas, and values held against them.

`schema` compiles one, with `graph`, `references` and `workload` (what it would cost) before;
`arguments` judges the arguments of one call, `members` one of them at a time while they are
written, `answers` an answer in prose that has to be JSON. What has the wrong type is converted by
`coercion` (`conversions`: value by value) where nothing is lost; what stays wrong is put by
`violations` in words that a model can act on.
"""
