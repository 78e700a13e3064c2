"""The caller's own JSON schemas, and the check of values against them.

`arguments` judges the arguments of one call, its members while the model writes them, or an answer
that has to be JSON. It uses a `schema`, which compiles the caller's document and lists what is
wrong with a value. Before that, `patterns` chooses the regular
expressions that are compiled, and `workload` estimates the time for a value, on the `graph` of the
schema. `coercion` converts values of the wrong type if nothing is lost; `violations` describes the
rest in words that a model can act on. `rewriting` changes schemas: without some patterns, simpler
for an engine, or combined to the schema of a call.
"""
