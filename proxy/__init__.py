"""Temper: an OpenAI-compatible proxy that makes tool calling with local models reliable.

`__main__` is the command. The rooms, from the edge inwards: cli, demo and doctor; api; serving;
settings; toolservers; processes; observability; profiles and hardware; backends; inference and
rounds; guardrails, context and dialects; conversation. `engine` puts a turn's questions to a
backend, `errors` is everything that can go wrong, `facts` what happened to a request.
docs/architecture.md is the map.
"""
