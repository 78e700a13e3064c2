"""What is known about each model family: data from config/models, and which of it fits a model.

`files` reads `profile`s; `recognition` finds the one that fits, and `chat_templates` what a
template says for itself. `known_model` is the result for one model, `summary` shows it. Nothing
here asks a backend.
"""
