"""Tasks, their worlds, and their judgment.

- `scenario` has the types. `task` is a task with its right steps, `worlds` executes tools, and
  `building` assembles tasks.
- The families of tasks are in `calling`, `stepping`, `restraint` and `ordering`. They use the tools
  of `catalogue` and the requests of `actions`. The families in `held_out` are by a second author
  and have separate tools. `suite` lists all families.
- `files` reads a user's scenarios, `raw_answers` finds calls and results in the text of an answer,
  and `invention` invents arguments.
"""
