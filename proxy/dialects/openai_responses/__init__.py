"""The Responses language, spoken by clients only.

- `front`: what the edge sees of it, and the answer as a stream
- `schema`, `decode`: the fields of a request; what happens to each field, item and tool
- `items`: the conversation
- `tools`, `client_tools`: what the model may call, and as what calls come back
- `response`, `output`: the answer, whole
- `store`: responses that are kept, and what is answered about them
"""
