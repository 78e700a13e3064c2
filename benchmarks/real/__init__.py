"""Measures Temper with real models in a closed loop: `python -m benchmarks real`.

`bed` has tools over a small world, and tasks with the calls that they need. `shop`, `workspace` and
`travel` are the three tool sets, with twenty tasks each, which `tasks` numbers. `loop` is the
client. `judging` decides from a transcript alone whether the task was done and whether the user saw
markup. `arms` starts the servers, `relay` counts generations, `records` has the finished tasks,
`table` sums up, and `command` is the command line.
"""
