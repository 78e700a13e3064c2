"""Agents: a model, tools and a loop between them, for programs that embed Temper.

`agent` is what a program writes down, `model` what `temper serve` would serve, opened in the
program itself; `running` is one run of an agent. `results` is what comes of a run and what it shows
meanwhile, `stream` hands that on, also to a program's hooks. `own_parts` are a client and a way to
shorten conversations that the program brings itself.

For loops of others: `foreign` are the guardrails without I/O, `background` is a server in a thread.
"""
