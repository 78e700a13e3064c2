"""Temper as a library: agents with tools, and guardrails for the loop of a program.

`agent` is the configuration of an agent; `model` opens the models of `temper serve` inside the
program; `running` is one run of an agent, with `results` and events, which `stream` delivers to the
program and its hooks. `custom` are a client and a compaction that the program provides.

For programs with their own loop: `foreign` has the guardrails without I/O, `guard_parts` has them
one by one, and `background` runs the server in a thread.
"""
