"""Tools described in the prompt, for chat templates that do not describe them.

`history` writes the tools and the calls and results of a conversation as text, in one of the
conventions: those of formats.toml (`fragments`), ReAct (`react`), or a JSON contract
(`json_contract`).
"""
