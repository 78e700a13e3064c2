"""The chat completions language, spoken by clients and by most backends.

Towards clients: `dialect`, which reads requests with `decode` (`schema`, `tool_rounds`) and writes
answers with `encode`. Towards backends: `encode` writes questions, `replies` reads `chunks`, with
`fragments` for those that nearly all chunks are. `thinking` is for both.
"""
