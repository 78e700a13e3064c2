"""Ollama's chat API for engines, and in `downstream` for clients.

`encode` writes requests, with the table of fields in `fields`; `decode` reads the lines of a reply.
"""
