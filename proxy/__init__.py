"""Temper: an OpenAI-compatible proxy that makes tool calling with local models reliable.

`__main__` is the command. The rooms, from the edge inwards: cli, demo, doctor, agents and evals;
api; serving; settings; processes and state; observability; profiles and hardware; backends; tools;
inference and rounds; guardrails, context and dialects; conversation. `engine` puts a turn's
questions to a backend, `runner` carries out rounds of tools, `errors` is everything that can go
wrong, `facts` what happened to a request. docs/architecture.md is the map.
"""
