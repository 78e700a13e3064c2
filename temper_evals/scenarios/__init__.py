"""Tasks, their worlds, and their judgment.

`scenario` has the types, `task` is a plan with an oracle, `worlds` has tools that act, and
`building` assembles tasks. The families are in `calling`, `stepping`, `restraint` and `ordering`;
they use the tools of the `catalogue` and the wishes of `actions`. The families in `held_out` are by
a second author and have separate tools. `suite` lists the families, `files` reads a user's
scenarios, `raw_answers` finds calls and results that an answer shows as raw text, and `invention`
invents arguments.
"""
