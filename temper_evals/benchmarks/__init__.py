"""Benchmarks of other authors, run by `temper eval --benchmark NAME`; no file of them is copied.

`bfcl` runs the Berkeley Function Calling Leaderboard with the package's own tools and checkers, and
`gold_model` is the simulated model that plays its right answers.
"""
