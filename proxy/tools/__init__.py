"""Tool calls that Temper executes: the loop around a model, and Python functions as tools.

A request can have four kinds of tools, which differ in the process that executes them:

- **Tools of the client** come with the request. Temper checks their calls and returns them; it
  never executes them, so they need nothing from this package.
- **Tools of the operator** belong to tool servers that are configured in `[mcp.NAME]`. The proxy
  executes them between two replies, on behalf of the client: `proxy.mcp`, with the loop below.
- **Functions of a program** that embeds Temper as a library (`@tool`, `Agent`). They run in the
  process of that program.
- **Temper's own tools** are executed by the proxy, without a tool server. `built_in` defines them:
  `on_demand` finds the definitions of summarized tools, and `recall` the messages that compaction
  removed.

The loop executes all kinds of tools except the client's. `executor` defines the protocol for
executing calls, and the outcome of a call. `run` is the state machine of one request, without I/O;
`runner` drives it. `transcript` is a conversation that only grows, and `history_forms` converts
conversations from and to the formats of other APIs.

For functions of a program, `function` has the decorator and its options, `signature` reads types
and docstrings, and `schema` converts them to a JSON schema and parses arguments. `execution` calls
the functions of one reply, `results` formats their return values, and `toolset` is the collection
of functions that a program offers.
"""
