"""Runs a Valkey or Redis server for one test, on a free port of loopback."""

import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.load.processes import free_port
from tests.timeouts import TIMEOUT_SECONDS

_LOOK = 0.01


@dataclass
class StoreServer:
    """A server; it stores nothing on disk, so it is empty after a restart."""

    program: Path
    folder: Path
    options: Sequence[str] = ()
    port: int = field(default_factory=free_port)
    _process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """The URL of the server."""
        return f"redis://127.0.0.1:{self.port}"

    @contextmanager
    def running(self) -> Iterator["StoreServer"]:
        """Run the server until the block or the test ends it."""
        self.start()
        try:
            yield self
        finally:
            self.kill()

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        where = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder)]
        command = [str(self.program), *where, "--save", "", "--appendonly", "no", *self.options]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        until = time.monotonic() + TIMEOUT_SECONDS
        while time.monotonic() < until and self._process.poll() is None:
            with suppress(OSError):
                socket.create_connection(("127.0.0.1", self.port)).close()
                return
            time.sleep(_LOOK)
        raise AssertionError(f"{self.program} does not start")

    def kill(self) -> None:
        """Kill the server with SIGKILL."""
        if self._process is not None:
            self.thaw()
            self._process.kill()
            self._process.wait(TIMEOUT_SECONDS)
            self._process = None

    def freeze(self) -> None:
        """Stop the process (SIGSTOP): its sockets stay open, but it does not answer."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Continue the process (SIGCONT)."""
        self._signal(signal.SIGCONT)

    def ask(self, *words: str) -> bytes:
        """Send a command in the inline format; return the first bytes of the answer."""
        with socket.create_connection(("127.0.0.1", self.port)) as connection:
            connection.sendall(" ".join(words).encode() + b"\r\n")
            return connection.recv(65_536)

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)


@contextmanager
def monitored(server: StoreServer) -> Iterator[list[bytes]]:
    """Record the commands that the server gets in the block; the block's end fills the list."""
    seen: list[bytes] = []
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.settimeout(TIMEOUT_SECONDS)
        connection.sendall(b"MONITOR\r\n")
        lines = connection.makefile("rb")
        assert lines.readline() == b"+OK\r\n"
        yield seen
        server.ask("ECHO", "the-end-of-it")
        while b"the-end-of-it" not in (line := lines.readline()):
            seen.append(line)
        lines.close()
