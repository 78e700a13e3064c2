"""OpenAI's Responses API, for clients only.

- `dialect`: decoding of requests
- `schema`: the fields of a request, and the handling of each field, item and tool
- `items`: the conversation
- `tools`, `client_tools`: the offered functions, and the client's tools that they represent
- `output`, `response`, `encode`: the items of an answer, the response object, and the stream
- `models`: the model list for Codex
- `store`: stored responses and the endpoints for them
"""
