"""Tool servers of the operator (MCP): started, asked for their tools, and called.

`fleet` runs all of them. `server` is one: a task of its own connects to it (`connecting`), takes
its `definitions` and starts over when it is gone; `specification` says what it is, and what became
of a call. `execution` decides which tools a request gets and runs what it calls, and
`confirmations` are calls that wait for a person's yes before.

`connecting`, `server` and `fleet` import the SDK of MCP, which takes longer than the rest of
Temper: nobody imports them where no tool server is configured.
"""
