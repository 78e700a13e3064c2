"""Measures Temper with real models in a closed loop: `python -m benchmarks real`.

- `bed` has the types: tools that act on a small world, and tasks with the calls that they need.
  `shop`, `workspace` and `travel` are the three tool sets with twenty tasks each, and `tasks`
  numbers all tasks.
- `loop` is the client. `judging` decides from a transcript whether the task was done, and whether
  the user saw markup.
- `arms` starts the servers, and `relay` counts generations.
- `records` stores the finished tasks, `table` shows the sums, `cards` makes result cards of them,
  and `command` is the command line.
"""
