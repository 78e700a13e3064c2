"""The types of a conversation with a model, independent of wire formats and I/O.

- `requests`: a client's request and an upstream request
- `messages`, `parts`, `roles`: the history and its contents
- `tools`: offered tools and calls
- `replies`, `endings`: events of a reply and finish reasons
- `workflows`: rules of order for tool calls
- `json`, `document_cache`: JSON as bytes and values, and a cache of parsed documents
- `failures`, `reminders`: results that report failure, and a client's notes
- `possessive`: possessive regular expressions for every Python version

docs/glossary.md explains the terms.
"""
