"""OpenAI's chat completions, for clients and for most engines.

For clients, `dialect` reads requests with `decode` (`schema`, `tool_rounds`), and writes answers
with `encode`. For engines, `encode` also writes upstream requests, and `replies` reads `chunks`;
`fragments` is a fast path for the most common chunks. `thinking` reads and writes thinking options.
"""
