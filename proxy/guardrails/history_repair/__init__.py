"""Mend an incoming history so that any backend and any chat template can read it.

`history` does it, with `members` (of one message), `pairing` (calls and results), `roles`,
`tools` and `control_tokens`; `content` joins texts, `notes` are the words it writes.
"""
