"""`temper launch`: one command from nothing to a coding agent on a local model.

`agents` is the table of agents and their configuration, `user_files` writes that configuration
permanently and restores the user's files, `launching` starts Temper and the agent.
"""
