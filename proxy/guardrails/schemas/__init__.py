"""The caller's own JSON schemas, and the check of values against them.

`schema` compiles one, after `graph` and `workload` have estimated its cost. `patterns` estimates
regular expressions, `pattern_choice` chooses those that are compiled, `pattern_removal` removes the
others, and `pattern_work` limits how much text they match. `keywords` knows where a schema contains
others. `arguments` judges the arguments of one call, or an answer that has to be JSON; `members`
judges one member at a time while they are written. `coercion` converts values of the wrong type if
nothing is lost; `violations` describes the rest in words that a model can act on.
"""
