"""One child process: started, listened to, stopped, always reaped. Knows no particular program.

One owner task looks after each child. Everybody else asks: `stop` asks the owner, `wait` waits
for it, and nobody reads a state in order to act on it.
"""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import proxy
from proxy.errors import LaunchFailed
from proxy.processes.log_tail import LogTail

logger = logging.getLogger(__name__)

GRACE_SECONDS = 3.0
_LAST_WORDS_SECONDS = 1.0
_PACKAGE_ROOT = str(Path(proxy.__file__).parents[1])

LineListener = Callable[[str], None]


def python_module(name: str, *options: str) -> tuple[str, ...]:
    """Return the command that runs one of our modules, whatever lies in the working directory."""
    return (sys.executable, "-P", *options, "-m", name)


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """Where a managed server answers whoever has its key."""

    base_url: str
    api_key: str = field(repr=False)


class Process:
    """A running child; make one with `start`."""

    def __init__(
        self,
        name: str,
        child: asyncio.subprocess.Process,
        lifeline: int,
        *,
        listener: LineListener,
        grace_seconds: float,
    ) -> None:
        self.name = name
        self.pid = child.pid
        self._child = child
        self._lifeline = lifeline
        self._listener = listener
        self._grace_seconds = grace_seconds
        self._tail = LogTail()
        self._stop_wanted = asyncio.Event()
        self._owner = asyncio.create_task(self._look_after(), name=f"owner of {name}")

    @classmethod
    async def start(
        cls,
        command: tuple[str, ...],
        *,
        name: str,
        environment: Mapping[str, str] | None = None,
        listener: LineListener = lambda _line: None,
        grace_seconds: float = GRACE_SECONDS,
    ) -> "Process":
        """Start `command` in a session of its own, with `environment` added to ours.

        Every line it writes goes to `listener`, which must not raise, to the debug log and to the
        tail. It dies with us, or with the thread that runs this event loop. `stop` leaves it
        `grace_seconds` between the request to end and the kill.
        """
        reading_end, lifeline = os.pipe()
        try:
            child = await asyncio.create_subprocess_exec(
                *python_module("proxy.processes.parent_death", "-S"),
                str(os.getpid()),
                *command,
                stdin=reading_end,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                start_new_session=True,  # a Ctrl-C in the terminal is for us alone
                env={**os.environ, **(environment or {}), "PYTHONPATH": _PACKAGE_ROOT},
            )
        except BaseException as problem:  # a cancellation too: the pipe is still ours
            os.close(lifeline)
            if isinstance(problem, OSError):
                sentence = f"could not be started: {problem}"
                raise LaunchFailed(name, sentence, is_lasting=True) from problem
            raise
        finally:
            os.close(reading_end)
        return cls(name, child, lifeline, listener=listener, grace_seconds=grace_seconds)

    @property
    def tail(self) -> tuple[str, ...]:
        """The last lines it wrote."""
        return self._tail.lines

    async def wait(self) -> int:
        """Wait for its end and return the exit code, negative for a signal."""
        return await asyncio.shield(self._owner)

    async def stop(self) -> int:
        """Ask it to end, make it end after a grace time, and return its exit code."""
        self._stop_wanted.set()
        return await self.wait()

    async def _look_after(self) -> int:
        listening = asyncio.create_task(self._listen())
        ending = asyncio.create_task(self._end_when_wanted())
        try:
            exit_code = await self._child.wait()
            await asyncio.wait({listening}, timeout=_LAST_WORDS_SECONDS)
        finally:
            self._kill()  # it still lives only if we are cancelled
            os.close(self._lifeline)
            ending.cancel()
            listening.cancel()
            await asyncio.gather(self._child.wait(), ending, listening, return_exceptions=True)
        logger.debug("%s (process %d) ended with %d", self.name, self.pid, exit_code)
        return exit_code

    async def _end_when_wanted(self) -> None:
        await self._stop_wanted.wait()
        with suppress(ProcessLookupError):
            self._child.terminate()
        await asyncio.sleep(self._grace_seconds)
        self._kill()

    async def _listen(self) -> None:
        output = self._child.stdout
        if output is None:
            return
        while chunk := await output.read(65536):
            self._report(self._tail.feed(chunk))
        self._report(self._tail.finish())

    def _report(self, lines: list[str]) -> None:
        for line in lines:
            logger.debug("%s: %s", self.name, line)
            self._listener(line)

    def _kill(self) -> None:
        if self._child.returncode is None:  # afterwards the number may be another process's
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)


@dataclass(frozen=True, slots=True)
class RunningServer(ServerAddress):
    """A server that is ready; its `process` reports when it ends."""

    process: Process
