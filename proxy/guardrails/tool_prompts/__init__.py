"""Tools described in the prompt, for backends and chat templates that cannot render them.

`history` rewrites a history in one of the conventions, which are in `guardrails/formats` and are
composed of `fragments`.
"""
