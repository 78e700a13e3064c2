"""What the client of a stream may see at once, and what waits for the end of the reply.

`release` decides for text, `calls` for whole calls, `arguments` for those that are being written,
and `watched` holds back while a reply may still turn out to be something else.
"""
