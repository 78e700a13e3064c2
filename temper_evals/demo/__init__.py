"""`temper demo`: a model with handwritten answers, directly and through Temper.

`command` reads the flags, `demonstration` sends the prompts in `scenarios`, `answers` reads the
responses, and `show` prints them. `scripted_model` builds the model from a `vocabulary` and a
`chat_template`. `own_model` has the prompts for the user's own model.
"""
