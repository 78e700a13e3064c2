"""HTTP in: routes, limits, error bodies and streaming. It decides nothing about a conversation."""
