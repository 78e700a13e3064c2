"""Tools described in the prompt, for backends and chat templates that cannot render them.

`history` retells a history by one of the conventions, which stand in `guardrails/formats` and are
put together of `fragments`.
"""
