"""Checks values against the client's JSON schemas, and coerces them where that is safe.

`arguments` is the interface for the rest of the guardrails. It checks the arguments of a call, a
single argument while the model still writes the call, or a reply that has to be JSON.

It uses these modules, in the order of their dependencies:

- `patterns` estimates the cost of regular expressions, `graph` links the sub-schemas of a schema,
  and `workload` estimates the time to check a value. The schema comes from a client and the value
  from a model; the limits on these estimates prevent both from blocking the event loop.
- `schema` compiles a schema, checks values and lists errors, within these estimates.
- `coercion` converts values of the wrong type; `violations` describes the remaining errors to a
  model.
- `rewriting` derives other schemas: without some patterns, simpler for an engine, or for a complete
  call.
"""
