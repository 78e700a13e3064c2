"""Benchmarks of other authors, run by `temper eval --benchmark NAME`; no file of them is copied.

`registry` has them by name. `agentdojo` attacks tasks through tool results. `bfcl` runs the
Berkeley Function Calling Leaderboard with the package's own tools and checkers, and `gold_model` is
the simulated model that plays its right calls. `gold_calls` writes right calls in every syntax that
Temper reads, those of `bfcl` or of `tau2_calls`. `tool_eval_bench` lets the package of that name
run its scenarios. `packages` imports them.
"""
