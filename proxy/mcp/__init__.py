"""Tool servers of the operator (MCP): started, listed, and called.

`hosting` translates the settings into the tools and limits of a request, and `lazy` starts the
configured servers, and imports nothing without any. `inspection` lists servers for `temper tools`
and `temper doctor`.

`fleet` has all running servers. `server` is one: a task connects to it (`connecting`), reads its
`definitions` and reconnects after a failure; `specification` has its configuration and the result
of one call. `execution` selects the tools of a request and executes its calls; `confirmations` are
the calls that wait for the consent of a person. `built_in` has Temper's own tools, which no server
runs.

`connecting`, `server` and `fleet` import the MCP SDK, which takes longer to import than the rest of
Temper, so they are imported only where a tool server is configured.
"""
