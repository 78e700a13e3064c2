"""Runs a Python program many times by forking a process that has loaded it once.

The interpreter of a peer runs this, so no module of this repository can be imported. Each line of
the input is an order: `{"run": [arguments], "log": path}` returns the id of the new process, and
`{"end": id}` returns 0.
"""

import importlib
import json
import os
import runpy
import signal
import sys


def run(module: str, arguments: list[str], log: str) -> None:
    """Run the program in this process."""
    os.setsid()
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    for descriptor in (1, 2):
        os.dup2(output, descriptor)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__")
    raise SystemExit


def end(child: int) -> int:
    """Kill a program, even if it is blocked."""
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return 0


def main(module: str) -> None:
    """Execute orders until the end of the input."""
    importlib.import_module(f"{module}.__main__")
    for line in sys.stdin:
        order = json.loads(line)
        answer = end(order["end"]) if "end" in order else os.fork()
        if "run" in order and answer == 0:
            run(module, order["run"], order["log"])
        sys.stdout.write(f"{answer}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1])
