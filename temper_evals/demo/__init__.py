"""`temper demo`: a model whose answers are written by hand, and what happens to them.

`command` reads the flags, `demonstration` runs it and `show` prints it. `scenarios` are the
prompts, `answers` reads what a client got. `scripted_model` builds the model, from a `vocabulary`
and a `chat_template`. `own_model` is the demonstration on the user's model.
"""
