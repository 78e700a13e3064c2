"""The Messages language of Anthropic, spoken by clients, and in `upstream` to backends.

In reading order: `table` lists every name of the language and its handling, `schema` says what a
request looks like on the wire, `dialect` writes it in the language of backends, with the help of
`history` (its messages and their blocks) and `tools`. `encode` writes the blocks of an answer as a
stream or as a whole, and errors. `models` lists models.
"""
