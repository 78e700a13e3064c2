"""The vocabulary of a conversation with a model; it knows no wire format and does no I/O.

`requests` is what a client asks for and what is put to a backend, `messages` one entry of the
history, `roles` whose words a message is, `tools` what is offered and called, `replies` the events
in which an answer comes, `endings` why one ended, `workflows` rules of order. `json` reads and
writes bytes (`document_cache` keeps what was made of them); `failures` and `reminders` know how
results report failure, and notes of a client's own.
`possessive` writes patterns that every version of Python reads alike.

docs/glossary.md has the words.
"""
