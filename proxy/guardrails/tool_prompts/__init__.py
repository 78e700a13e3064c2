"""Tools described in the prompt, for backends and chat templates that cannot render them.

`history` rewrites a history in one of the conventions: those of the table `rescue/formats.toml`,
written by `fragments`, and those with code of their own, `react` and `json_contract`.
"""
