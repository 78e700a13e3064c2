"""OpenAI's chat completions, for clients and for most engines.

For clients, `dialect` reads requests with `decode` (`schema`, `tool_rounds`) and writes answers
with `encode`. For engines, `encode` writes upstream requests, and `replies` reads `chunks`, with a
fast path for the most common chunks in `fragments`. `thinking` reads and writes thinking options.
"""
