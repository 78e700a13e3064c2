"""Tasks, the worlds they are about, and what is right in the end.

`scenario` has the words, `task` is a plan with an oracle, `worlds` has tools that act, `building`
puts a task together. The families are in `calling`, `stepping`, `restraint` and `ordering`; they
take tools from the `catalogue` and wishes from `actions`; those in `held_out` are by somebody else
and have tools of their own. `suite` says which there are, `files` reads a user's own, `raw_answers`
finds calls and results that an answer shows as a model wrote them, and `invention` makes up
arguments.
"""
