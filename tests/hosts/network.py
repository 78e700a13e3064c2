"""Hosts of their own on this machine: network namespaces on a switch, with links that fail.

A host has an address, and programs that run on it. Nothing here reaches any other network: the
switch has no way out. Needs root, and the programs `ip` and `nft`.
"""

import ctypes
import os
import secrets
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import ParamSpec, TypeVar

from anyio.from_thread import BlockingPortal, start_blocking_portal

_NAMES = Path("/run/netns")  # where `ip netns` stores namespaces
_NEW_NETWORK = 0x40000000  # of setns
_NET = "10.77.0"
_TABLE = "inet faults"

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class NoNetwork(Exception):
    """Namespaces cannot be made here."""


def run(*command: str) -> str:
    """Run a program to its end; raises `NoNetwork` with its words if it fails."""
    try:
        done = subprocess.run(command, check=True, capture_output=True, text=True)
    except FileNotFoundError as error:
        raise NoNetwork(f"there is no {command[0]}") from error
    except subprocess.CalledProcessError as error:
        raise NoNetwork(f"{' '.join(command)}: {error.stderr.strip()}") from error
    return done.stdout


def missing() -> str:
    """Return why there can be no hosts here, "" where there can."""
    if os.name != "posix" or not Path("/proc/self/ns/net").exists():
        return "network namespaces are Linux's"
    if absent := [name for name in ("ip", "nft") if shutil.which(name) is None]:
        return f"there is no {' and no '.join(absent)} (Debian: iproute2, nftables)"
    try:
        with network("one") as (host,):
            host.cut()
    except NoNetwork as problem:
        return str(problem)
    return ""


@dataclass
class Host:
    """A host on the switch."""

    name: str
    address: str
    namespace: str
    switch: str
    _stack: ExitStack = field(default_factory=ExitStack)
    _threads: ThreadPoolExecutor | None = None

    def command(self, *command: str) -> tuple[str, ...]:
        """Return a command that runs the given one on this host."""
        return "ip", "netns", "exec", self.namespace, *command

    def later(
        self,
        work: Callable[Arguments, Result],
        *arguments: Arguments.args,
        **named: Arguments.kwargs,
    ) -> Future[Result]:
        """Have a function called by a thread that is on this host."""
        if self._threads is None:
            pool = ThreadPoolExecutor(16, initializer=self._enter)
            self._threads = self._stack.enter_context(pool)
        return self._threads.submit(work, *arguments, **named)

    @contextmanager
    def event_loop(self) -> Iterator[BlockingPortal]:
        """Run an event loop on this host, in a separate thread."""
        with start_blocking_portal() as portal:
            portal.call(self._enter)
            yield portal

    def cut(self) -> None:
        """Swallow all packets to it and from it, without a word."""
        self.deafen()
        self.mute()

    def deafen(self) -> None:
        """Drop all packets to it; it can still send."""
        self._drop("input")

    def mute(self) -> None:
        """Drop all packets from it; it can still receive."""
        self._drop("output")

    def swallow_large(self, most: int) -> None:
        """Drop larger packets to it, as a path with an unannounced MTU does."""
        self._drop("input", "meta", "length", ">", str(most))

    def restore(self) -> None:
        """Let everything pass again, over a cable that is plugged in."""
        run("ip", "-n", self.switch, "link", "set", self.name, "up")
        if _TABLE in run(*self.command("nft", "list", "tables")):
            run(*self.command("nft", "delete", "table", *_TABLE.split()))

    def unplug(self) -> None:
        """Pull the cable out: both ends see that the link is down."""
        run("ip", "-n", self.switch, "link", "set", self.name, "down")

    def _drop(self, chain: str, *what: str) -> None:
        chained = f"{{ type filter hook {chain} priority 0; }}"
        run(*self.command("nft", "add", "table", *_TABLE.split()))
        run(*self.command("nft", "add", "chain", *_TABLE.split(), chain, chained))
        which = what or ("iifname" if chain == "input" else "oifname", "!=", "lo")
        run(*self.command("nft", "add", "rule", *_TABLE.split(), chain, *which, "drop"))

    def _enter(self) -> None:
        """Move this thread to the host: sockets that it opens are the host's."""
        with (_NAMES / self.namespace).open("rb") as namespace:
            libc = ctypes.CDLL(None, use_errno=True)
            if libc.setns(namespace.fileno(), _NEW_NETWORK):
                raise NoNetwork(os.strerror(ctypes.get_errno()))

    def close(self) -> None:
        self._stack.close()


@contextmanager
def network(*names: str) -> Iterator[Sequence[Host]]:
    """Make hosts on a switch; they are gone when the block ends."""
    prefix = f"temper-{secrets.token_hex(4)}"
    switch = f"{prefix}-switch"
    with ExitStack() as stack:
        _namespace(stack, switch)
        run("ip", "-n", switch, "link", "add", "name", "bridge", "type", "bridge")
        run("ip", "-n", switch, "link", "set", "bridge", "up")
        hosts: list[Host] = []
        for number, name in enumerate(names, start=1):
            host = Host(name, f"{_NET}.{number}", f"{prefix}-{name}", switch)
            _namespace(stack, host.namespace)
            _connect(host)
            stack.callback(host.close)
            hosts.append(host)
        yield hosts


def _namespace(stack: ExitStack, name: str) -> None:
    run("ip", "netns", "add", name)
    stack.callback(run, "ip", "netns", "del", name)
    run("ip", "-n", name, "link", "set", "lo", "up")


def _connect(host: Host) -> None:
    """Lay a cable from the host to the switch."""
    switch, inside = host.switch, host.namespace
    peer = ("peer", "name", "eth0", "netns", inside)
    run("ip", "-n", switch, "link", "add", "name", host.name, "type", "veth", *peer)
    run("ip", "-n", switch, "link", "set", host.name, "master", "bridge", "up")
    run("ip", "-n", inside, "address", "add", f"{host.address}/24", "dev", "eth0")
    run("ip", "-n", inside, "link", "set", "eth0", "up")
