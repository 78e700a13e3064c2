"""`temper eval`: measures how much Temper helps, at what cost, and with what harm.

The tasks and the models:

- `scenarios` are the tasks, and `tags` describe them.
- `model_setups` are the models. `simulated` is a model with published error rates, `reply_bed`
  plays recorded replies of real models, and `endpoints` finds running servers.
- `bfcl` reads questions of the Berkeley Function Calling Leaderboard, `forge_checkout` reads
  forge's scenarios, and `benchmarks` runs whole benchmarks of other authors.

A run:

- `arms` are the compared ways to send requests to a model: directly, or through Temper with
  different settings. `temper_server` starts Temper for an arm.
- `loop` is the agent; `replies` reads the responses for it.
- `runs` makes the runs that the `records` lack. `sequential` decides when a comparison has enough
  runs. `evaluation` runs an evaluation, and `command` is its command line.

The results:

- `results` aggregates the records with `statistics`, and `report` prints them.
- `cards` are files of counts that users can publish.
- `tuning` finds the settings that help a model, and `tune_command` writes them for `temper serve`.
- `traffic` tests other rules on recorded traffic.
- `inspect` offers the suite to Inspect AI.
"""
