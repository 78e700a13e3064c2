"""The Messages API for engines: Temper as a client of Anthropic's API.

`encode` writes upstream requests, with the table of fields in `fields`; `decode` reads the events
of a reply, and errors.
"""
