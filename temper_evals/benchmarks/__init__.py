"""Benchmarks of other authors, for `temper eval --benchmark NAME`; none of their files is copied.

- `registry` lists them by name, and `packages` imports them.
- `agentdojo` attacks tasks through tool results.
- `bfcl` runs the Berkeley Function Calling Leaderboard with the package's own tools and checkers.
  `gold_model` is a simulated model that makes the right calls of a benchmark.
- `gold_calls` writes the right calls of `bfcl` or `tau2_calls` in every syntax that Temper reads.
- `tau2` lets an agent repair phones by tool calls, without a user.
- `tool_eval_bench` lets the package of that name run its scenarios.
"""
