"""Runs a child process: starts it, reads its output, stops it, and always reaps it.

Each child has an owner, the only task that sends signals to the child and reaps it. `stop` sets an
event for the owner, and `wait` waits for the owner to end. So no task acts on an outdated state,
for example by killing a process whose id was reused.
"""

import asyncio
import errno
import logging
import os
import re
import sys
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

import proxy
from proxy import systems
from proxy.errors import LaunchFailed
from proxy.observability.sentences import visible
from proxy.processes import parent_death

MOST_LINES = 200  # lines of output that are stored for error messages
LONGEST_LINE = 1000  # characters of a line that are stored
_PERCENTAGE = re.compile(r"\d{1,3}%(\\x1b\[K)?$")  # the end of a progress bar


class LogTail:
    """Splits a child's output into lines, and stores the last `MOST_LINES`."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=MOST_LINES)
        self._unfinished = b""

    @property
    def lines(self) -> tuple[str, ...]:
        return tuple(self._lines)

    @property
    def dots(self) -> str:
        """The incomplete last line, if it is a row of dots."""
        dots = self._unfinished.strip(b".") == b""
        return self._unfinished.decode() if dots else ""

    def feed(self, output: bytes) -> list[str]:
        """Add output; return the lines that it completes."""
        *complete, incomplete = (self._unfinished + output).replace(b"\r", b"\n").split(b"\n")
        # a line without an end must not grow forever; a character has at most 4 bytes
        self._unfinished = incomplete[: LONGEST_LINE * 4]
        return self._keep(complete)

    def finish(self) -> list[str]:
        incomplete, self._unfinished = self._unfinished, b""
        return self._keep([incomplete])

    def _keep(self, raw_lines: list[bytes]) -> list[str]:
        lines = [_printable(raw) for raw in raw_lines if raw.strip()]
        for line in lines:
            # A progress bar is many lines. Only the latest of them is stored, because they would
            # displace all other lines.
            if self._lines and _PERCENTAGE.search(line) and _PERCENTAGE.search(self._lines[-1]):
                self._lines.pop()
            self._lines.append(line)
        return lines


def _printable(raw: bytes) -> str:
    text = raw.decode("utf-8", "replace")[:LONGEST_LINE].rstrip().replace("\t", " ")
    return visible(text)


class PseudoTerminal:
    """The reading end of a pseudo-terminal; the child process writes to the end `child`."""

    def __init__(self) -> None:
        import termios  # not available on Windows

        self._parent, self.child = os.openpty()
        attributes = termios.tcgetattr(self.child)
        attributes[1] &= ~termios.OPOST  # otherwise every line ends with a carriage return
        termios.tcsetattr(self.child, termios.TCSANOW, attributes)
        os.set_blocking(self._parent, False)

    async def read(self, size: int) -> bytes:
        """Return the next bytes as soon as they arrive; b"" after the child has exited."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                return os.read(self._parent, size)
            except BlockingIOError:
                ready = asyncio.Event()
                loop.add_reader(self._parent, ready.set)
                try:
                    await ready.wait()
                finally:
                    loop.remove_reader(self._parent)
            except OSError as error:
                if error.errno == errno.EIO:  # the child has closed its end
                    return b""
                raise

    def close(self) -> None:
        os.close(self._parent)


logger = logging.getLogger(__name__)

_OUTPUT_SECONDS = 1.0  # the longest wait for the output that is still in the pipe after the exit
# The folder with the package `proxy`, for PYTHONPATH: a child may run modules of Temper.
_PACKAGE_ROOT = str(Path(proxy.__file__).parents[1])

LineListener = Callable[[str], None]


def python_module(name: str, *options: str) -> tuple[str, ...]:
    """Return the command that runs a module of Temper.

    `-P` ignores a file of the same name in the working directory.
    """
    return (sys.executable, "-P", *options, "-m", name)


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """The address and key of a managed server."""

    base_url: str
    api_key: str = field(repr=False)


class Process:
    """A running child process; `start` creates it."""

    def __init__(
        self,
        name: str,
        child: asyncio.subprocess.Process,
        output: tuple[asyncio.StreamReader | PseudoTerminal, Callable[[], None]],
        *,
        listener: LineListener,
        grace_seconds: float,
    ) -> None:
        self.name = name
        self.pid = child.pid
        self._child = child
        self._output, self._release = output
        self._listener = listener
        self._grace_seconds = grace_seconds
        self._tail = LogTail()
        self._stop_requested = asyncio.Event()
        self._owner = asyncio.create_task(self._supervise(), name=f"owner of {name}")

    @classmethod
    async def start(
        cls,
        command: tuple[str, ...],
        *,
        name: str,
        environment: Mapping[str, str] | None = None,
        listener: LineListener = lambda _line: None,
        grace_seconds: float = 3.0,
        on_terminal: bool = False,
    ) -> "Process":
        """Start `command` in a new session, with `environment` added to Temper's environment.

        `listener`, which must not raise, receives every line of output; the debug log and `tail`
        contain the same lines. If the incomplete last line is a row of dots, `listener` also
        receives this row each time it grows (see `start_progress`). The child is killed when Temper
        dies or the thread of this event loop ends. `stop` waits `grace_seconds` between SIGTERM and
        SIGKILL. If `on_terminal`, the output is a pseudo-terminal, because curl and llama.cpp show
        progress only on a terminal.
        """
        with ExitStack() as resources:
            # the kernel closes `lifeline` when Temper dies, see `parent_death`
            reading_end, lifeline = os.pipe()
            resources.callback(os.close, lifeline)
            has_terminal = on_terminal and systems.HAS_PSEUDO_TERMINALS
            if terminal := PseudoTerminal() if has_terminal else None:
                resources.callback(terminal.close)
            try:
                child = await asyncio.create_subprocess_exec(
                    *systems.tie_to_parent(command, parent_death.__file__),
                    stdin=reading_end,
                    stdout=terminal.child if terminal is not None else asyncio.subprocess.PIPE,
                    stderr=asyncio.subprocess.STDOUT,
                    start_new_session=True,  # so that Ctrl-C in a terminal signals only Temper
                    creationflags=systems.CREATION_FLAGS,
                    env={**os.environ, **(environment or {}), "PYTHONPATH": _PACKAGE_ROOT},
                )
            except OSError as problem:
                sentence = f"could not be started: {problem}"
                raise LaunchFailed(name, sentence, is_lasting=True) from problem
            finally:
                os.close(reading_end)
                if terminal is not None:
                    os.close(terminal.child)
            resources.callback(systems.tie_tree(child.pid))
            reader = terminal or child.stdout
            assert reader is not None  # noqa: S101 - without a terminal, stdout is a pipe
            output = (reader, resources.pop_all().close)
        return cls(name, child, output, listener=listener, grace_seconds=grace_seconds)

    @property
    def tail(self) -> tuple[str, ...]:
        return self._tail.lines

    @property
    def is_running(self) -> bool:
        return self._child.returncode is None

    async def wait(self) -> int:
        """Wait for the process to end; return the exit code, negative for a signal."""
        return await asyncio.shield(self._owner)

    async def stop(self) -> int:
        """Terminate the process, kill it after a grace time, and return the exit code.

        Even a canceled caller returns only after the process has ended, because only then its
        memory is free.
        """
        self._stop_requested.set()
        try:
            return await self.wait()
        except asyncio.CancelledError:
            await self.wait()
            raise

    async def _supervise(self) -> int:
        listening = asyncio.create_task(self._listen())
        ending = asyncio.create_task(self._terminate_on_request())
        try:
            exit_code = await self._child.wait()
            # The output with the reason of a crash may still be in the pipe. The wait for this
            # output is limited, because a grandchild may keep the pipe open.
            await asyncio.wait({listening}, timeout=_OUTPUT_SECONDS)
        finally:
            self._kill()  # the process still runs only if this task was canceled
            ending.cancel()
            listening.cancel()
            await asyncio.gather(self._child.wait(), ending, listening, return_exceptions=True)
            self._release()
        logger.debug("%s (process %d) exited with code %d", self.name, self.pid, exit_code)
        return exit_code

    async def _terminate_on_request(self) -> None:
        await self._stop_requested.wait()
        with suppress(ProcessLookupError):
            self._child.terminate()
        await asyncio.sleep(self._grace_seconds)
        self._kill()

    async def _listen(self) -> None:
        while chunk := await self._output.read(65536):
            self._report(self._tail.feed(chunk))
            if dots := self._tail.dots:
                self._listener(dots)
        self._report(self._tail.finish())

    def _report(self, lines: list[str]) -> None:
        for line in lines:
            logger.debug("%s: %s", self.name, line)
            self._listener(line)

    def _kill(self) -> None:
        if self._child.returncode is None:  # otherwise another process may have the same id
            systems.kill_tree(self.pid)


@dataclass(frozen=True, slots=True)
class RunningServer(ServerAddress):
    """The address and the process of a server that is ready."""

    process: Process
