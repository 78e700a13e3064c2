"""Counts the proxy's instructions with valgrind's callgrind, independent of the machine's load.

`counting` runs the proxy (`marked_proxy`) with a backend in lockstep with the client (`pace`).
`figures` compares the counts with the table, and `command` is the command line.
"""
