"""The Messages language the other way round: spoken by Temper, to Anthropic's API.

`encode` writes a question with `fields`, which has the table of them, and `tools`; `decode` reads
the events of a reply, and errors.
"""
