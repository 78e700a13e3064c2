"""Tool calls that are executed on this side: the loop around a model, and functions as tools.

A request can have three kinds of tools, which differ in the process that executes them:

- **Tools of the client** come with the request. Temper checks their calls and returns them; it
  never executes one. They need nothing from this package (`proxy.conversation.tools`).
- **Tools of the operator** belong to tool servers that are configured in `[mcp.NAME]`. The proxy
  executes them between two replies, on behalf of the client: `proxy.mcp`, with the loop below.
- **Functions of a program** that embeds Temper as a library (`@tool`, `Agent`). They run in the
  program's own process.

Temper's own tools, which the loop below runs like those of the operator, are in `built_in`: that
of `on_demand` finds the definitions of summarized tools, and `recall` the messages that compaction
removed.

The loop, used for the last two kinds: `executor` is the protocol of an object that executes calls,
with the outcome of a call; `run` is the state machine of one request, without I/O; `runner` drives
it; `transcript` is a conversation that only grows, and `history_forms` reads and writes it in the
forms of other APIs.

Functions: `function` has the decorator and its options, `signature` reads types and docstrings,
`schema` converts them to JSON schema and reads arguments, `results` formats return values,
`execution` calls the functions of one reply, `toolset` is the collection that a program offers.
"""
