"""Temper as a library: agents with tools, and guardrails for programs with their own agent loop.

`agent` is the configuration of an agent. `model` opens the models of `temper serve` inside the
program. `running` executes one run of an agent. `results` defines the result and the events of a
run; `stream` delivers them to the program and its hooks. `custom` adapts a program's own client of
an engine, or its own compaction.

For programs with their own loop, `foreign` contains the guardrails without I/O, `guard_parts` the
separate parts of the guardrails, and `background` runs the server in a thread.
"""
