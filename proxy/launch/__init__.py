"""`temper launch`: starts a coding agent, and Temper with a local model if necessary.

`agents` defines the configuration of each agent. `user_files` writes a configuration permanently
and restores the user's files. `launching` starts Temper and the agent.
"""
