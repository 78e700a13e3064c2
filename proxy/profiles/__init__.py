"""What is known about each model family: data from config/models, and which of it fits a model.

`files` reads `profile`s; `recognition` finds the one that fits. `known_model` is the result for one
model, with what its chat template says for itself. Nothing here asks a backend.
"""
