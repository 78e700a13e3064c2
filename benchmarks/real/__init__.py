"""Measures Temper with real models in a closed loop: `python -m benchmarks real`.

`bed` has the parts of a bed: tools over a small world, and tasks with the calls that they need.
`shop`, `workspace` and `travel` are the three tool sets, with eight tasks each. `loop` is the
client. `judging` decides, from a transcript alone, whether a task was done and what the user saw.
`arms` starts the servers, `table` sums up, and `command` is the command line.
"""
