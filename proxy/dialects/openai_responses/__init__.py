"""The Responses language, spoken by clients only.

- `front`: what the edge sees of it
- `table`: what happens to each field, item and tool
- `schema`, `decode`: the fields of a request
- `items`, `contents`: the conversation
- `tools`, `client_tools`: what the model may call, and as what calls come back
- `response`, `output`, `stream`: the answer, whole and as a stream
- `store`, `retrieval`: responses that are kept
"""
