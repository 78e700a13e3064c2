"""The chat completions language, spoken by clients and by most backends.

Towards clients: `front`, which reads requests with `decode` (`schema`, `choice`,
`workflow_rules`), writes answers with `encode`, and is described by `openapi`; `models` lists
models. Towards backends: `encode` writes questions, `decode` reads replies, with `calls` for tool
calls and `fragments` and `runs` for the chunks that nearly all chunks are. `thinking` is for both.
"""
