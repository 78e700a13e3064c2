"""The types of a conversation with a model, independent of wire formats and I/O.

- `requests`: a client's request and an upstream request
- `messages`, `parts`, `roles`: the history and its contents
- `tools`: offered tools, tool choice and calls
- `replies`, `endings`: events of a reply, and finish reasons
- `workflows`: rules for the order of tool calls
- `json`, `document_cache`: JSON as bytes and values, and a cache of parsed documents
- `failures`, `reminders`: recognize tool results that report a failure, and system reminders
- `possessive`: possessive regular expressions for every Python version

docs/glossary.md explains the terms.
"""
