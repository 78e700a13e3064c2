import asyncio
import sys
from contextlib import suppress
from pathlib import Path

from proxy.processes.process import Process
from tests.patience import PATIENCE_SECONDS

TELLS = """
import sys, time
print(sys.stdout.isatty(), sys.stderr.isatty(), flush=True)
print("Downloading m.gguf 10%", end="\\r")
print("Downloading m.gguf 20%", end="\\r")
print("done")
"""


def open_files() -> set[str]:
    """Return them by descriptor and name; files of others may be closed at any time."""
    found: set[str] = set()
    for one in Path("/dev/fd").iterdir():
        with suppress(OSError):  # the folder itself was one of them
            found.add(f"{one.name} {one.readlink()}")
    return found


def test_a_child_takes_it_for_a_terminal_and_its_lines_come_as_it_wrote_them() -> None:
    lines: list[str] = []

    async def work() -> tuple[str, ...]:
        async with asyncio.timeout(PATIENCE_SECONDS):
            command = (sys.executable, "-c", TELLS)
            child = await Process.start(
                command, name="child", listener=lines.append, on_terminal=True
            )
            assert await child.wait() == 0
        return child.tail

    before = open_files()
    tail = asyncio.run(work())
    assert lines == ["True True", "Downloading m.gguf 10%", "Downloading m.gguf 20%", "done"]
    assert tail == ("True True", "Downloading m.gguf 20%", "done")  # a bar is kept once
    assert open_files() - before == set()
