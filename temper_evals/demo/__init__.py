"""`temper demo`: a model with handwritten answers, directly and through Temper.

`command` reads the flags, `demonstration` runs it and `show` prints it. `scenarios` are the
prompts, and `answers` reads the responses. `scripted_model` builds the model from a `vocabulary`
and a `chat_template`. `own_model` is the demonstration on the user's model.
"""
