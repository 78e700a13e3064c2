"""The Responses language, spoken by clients only.

- `dialect`: what the edge sees of it, and how requests are read
- `schema`: the fields of a request; what happens to each field, item and tool
- `items`: the conversation
- `tools`, `client_tools`: what the model may call, and as what calls come back
- `output`, `response`, `encode`: the items of the answer, its object, and both as a stream
- `models`: the list of models for Codex
- `store`: responses that are kept, and what is answered about them
"""
