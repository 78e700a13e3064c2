"""`temper eval`: measures how much Temper helps, at what cost, and with what harm.

`scenarios` are the tasks, `simulated` is the model with published error rates, and `loop` is the
agent, which reads `replies`. `arms` are the ways to the model that are compared, `temper_server`
starts Temper for an arm, `model_setups` are the models, `endpoints` finds running servers, and
`runs` makes the missing runs of the `records`. `results` sums the records up with `statistics`, and
`report` shows the sums. `reply_bed` plays recorded replies of real models, and `traffic` judges
recorded traffic again. `tags` describe tasks, and `sequential` decides when a comparison has enough
runs. `tuning` finds the settings that help a model, and `tune_command` writes them for `temper
serve`. `evaluation` runs an evaluation, and `command` is its command line. `forge_checkout` reads
forge's scenarios, `bfcl` questions of the Berkeley Function Calling Leaderboard, `benchmarks` runs
whole benchmarks of other authors, and `inspect` offers the suite to Inspect AI.
"""
