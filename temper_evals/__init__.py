"""`temper eval`: how much Temper helps, what it costs, and what harm it does, by measurement.

`scenarios` are the tasks, `simulated` is the model with cited rates of errors, `loop` the agent
that reads `replies`. `arms` are what is compared, `temper_server` starts Temper as one of them,
`model_setups` are the models below, `endpoints` the servers that run already, and `runs` makes what
is missing of the `records`. `results` sums them up by `statistics`, and `report` shows that;
`reply_bed` plays recorded replies of real models, and `traffic` what Temper recorded itself.
`tags` say what kind of task one is, and `sequential` when a comparison is decided. `tuning` finds
out which settings help a model, and `tune_command` writes them down for `temper serve`.
`evaluation` does all of it for a choice, `command` reads the choice from flags. `forge_checkout`
reads forge's own scenarios, `bfcl` questions of the Berkeley leaderboard, and `inspect` offers the
suite to Inspect AI.
"""
