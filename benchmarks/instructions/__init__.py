"""Counts the proxy's instructions with valgrind's callgrind, independent of the machine's load.

In `counting`, the proxy (`marked_proxy`) runs between a backend and a client that proceed in
lockstep (`pace`). `figures` compares the counts with the table; `command` is the command line.
"""
