"""Instructions of the proxy, counted by valgrind's callgrind: no load of the machine changes them.

`counting` runs the proxy (`marked_proxy`) before a backend in lockstep with the client (`pace`),
`figures` compares the counts with the table, `command` is the command line.
"""
