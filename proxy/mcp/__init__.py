"""Tool servers of the operator (MCP): starts them, lists their tools, and calls the tools.

`hosting` translates the settings into the tools and limits of a request. `lazy` starts the
configured servers; if the settings require no tools, it imports no other module of this package.
`inspection` lists servers for `temper tools` and `temper doctor`.

`fleet` manages all running servers. Each server has a task in `server`, which connects to it by
`connecting`, reads the `definitions` of its tools, and reconnects after a failure. `specification`
defines the configuration of a server and the result of a call. `execution` selects the tools of a
request and executes the calls of these tools; `confirmations` has the calls that wait for approval
by a person. `built_in` contains the tools that Temper executes itself.

Importing the MCP SDK takes longer than importing all other modules of Temper. So the modules that
use it (`connecting`, `server` and `fleet`) are imported only if a tool server is configured.
"""
