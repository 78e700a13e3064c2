"""The Messages language the other way round: spoken by Temper, to Anthropic's API.

`table` says what becomes of each field of a client's request. `encode` writes a question with
`fields`, `messages` and `tools`; `decode` reads the events of a reply, and errors.
"""
