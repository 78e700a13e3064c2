"""The Responses language, spoken by clients only.

- `front`: what the edge sees of it
- `schema`, `decode`: the fields of a request
- `inputs`, `items`, `contents`, `results`, `remains`: the conversation
- `tools`, `client_tools`, `choice`, `calls`: what the model may call, and as what calls come back
- `response`, `open_items`, `output`, `stream`: the answer, whole and as a stream
- `store`, `retrieval`: responses that are kept
- `openapi`: what all of it looks like
- `coverage`: what happens to each field, item and tool
"""
