"""Tools described in the prompt, for backends and chat templates that cannot render them.

`history` retells a history by one `convention` of the `registry`: `hermes`, `mistral`, `llama3`,
`gemma`, `react`, `json_contract`. They are put together of `fragments` and `contents`.
"""
