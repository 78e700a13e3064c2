"""What is known about each model family: data from config/models, and which of it fits a model.

It does no I/O but reading those files: where names and chat templates come from is not its matter.
"""
