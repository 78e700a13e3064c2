"""JSON schemas of the client: values are checked against them, and coerced where that is safe.

`arguments` is the interface for the rest of the guardrails. It judges the arguments of one call,
one member of them while the model still writes, or a reply that has to be JSON.

The modules below it, in the order of their dependencies:

- `patterns` estimates the cost of regular expressions, `graph` links the sub-schemas of a schema,
  and `workload` estimates the time to check a value. A client chooses the schema and a model the
  value, so neither may keep the event loop busy.
- `schema` compiles a schema, checks values and lists errors, within these estimates.
- `coercion` converts values of the wrong type; `violations` words the remaining errors for a model.
- `rewriting` derives schemas: without some patterns, simpler for an engine, or for a whole call.
"""
