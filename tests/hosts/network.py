"""Hosts simulated by network namespaces on a virtual switch, with links that can fail.

    with network("client", "temper", "engine") as (client, temper, engine):   10.77.0.1, .2, .3
        engine.cut()                                                         drops its packets

The switch has no route to any other network. Needs root, and the programs `ip` and `nft`.
"""

import ctypes
import os
import secrets
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import ParamSpec, TypeVar

from anyio.from_thread import BlockingPortal, start_blocking_portal

IPV4, IPV6 = "10.77.0.", "fd77::"
_NAMES = Path("/run/netns")  # where `ip netns` stores namespaces
_NEW_NETWORK = 0x40000000  # CLONE_NEWNET, a flag of `setns`
_CONFIGURATIONS = Path("/etc/netns")  # `ip netns exec` mounts its files over those of /etc
_TABLE = "inet faults"

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class NoNetwork(Exception):
    """Network namespaces cannot be created on this machine."""


def run(*command: str) -> str:
    """Run a program and return its output; raises `NoNetwork` with its error output."""
    try:
        done = subprocess.run(command, check=True, capture_output=True, text=True)
    except FileNotFoundError as error:
        raise NoNetwork(f"there is no {command[0]}") from error
    except subprocess.CalledProcessError as error:
        raise NoNetwork(f"{' '.join(command)}: {error.stderr.strip()}") from error
    return done.stdout


def missing() -> str:
    """Return why hosts cannot be simulated on this machine; "" if they can."""
    if os.name != "posix" or not Path("/proc/self/ns/net").exists():
        return "network namespaces need Linux"
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
    """A host on the switch; `namespace` is its network namespace, `switch` that of the switch."""

    name: str
    address: str
    namespace: str
    switch: str
    _stack: ExitStack = field(default_factory=ExitStack)
    _threads: ThreadPoolExecutor | None = None

    def command(self, *command: str) -> tuple[str, ...]:
        """Return the command that runs another command on this host."""
        return "ip", "netns", "exec", self.namespace, *command

    def later(
        self,
        work: Callable[Arguments, Result],
        *arguments: Arguments.args,
        **named: Arguments.kwargs,
    ) -> Future[Result]:
        """Call a function in a thread of this host."""
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

    def define_names(self, addresses: Mapping[str, str], name_server: str = "") -> None:
        """Set the host's table of names, and its only name server.

        Programs that run already see the change. Programs that were started before the first
        call use the files of this machine.
        """
        folder = _CONFIGURATIONS / self.namespace
        if not folder.exists():
            folder.mkdir(parents=True)
            self._stack.callback(shutil.rmtree, folder)
        lines = [f"{address} {name}\n" for name, address in addresses.items()]
        (folder / "hosts").write_text("".join(lines))
        server = f"nameserver {name_server}\n" if name_server else ""
        (folder / "resolv.conf").write_text(server)

    def cut(self) -> None:
        """Drop all packets to and from this host."""
        self.deafen()
        self.mute()

    def deafen(self) -> None:
        """Drop all packets to this host; it can still send."""
        self._drop("input")

    def mute(self) -> None:
        """Drop all packets from this host; it can still receive."""
        self._drop("output")

    def swallow_large(self, most: int) -> None:
        """Drop packets to this host that exceed `most` bytes, like a path with a smaller MTU."""
        self._drop("input", "meta", "length", ">", str(most))

    def restore(self) -> None:
        """Plug the cable in, and remove all filters."""
        run("ip", "-n", self.switch, "link", "set", self.name, "up")
        if _TABLE in run(*self.command("nft", "list", "tables")):
            run(*self.command("nft", "delete", "table", *_TABLE.split()))

    def unplug(self) -> None:
        """Take the link down; unlike after `cut`, the host and the switch notice it."""
        run("ip", "-n", self.switch, "link", "set", self.name, "down")

    def _drop(self, chain: str, *what: str) -> None:
        chained = f"{{ type filter hook {chain} priority 0; }}"
        run(*self.command("nft", "add", "table", *_TABLE.split()))
        run(*self.command("nft", "add", "chain", *_TABLE.split(), chain, chained))
        which = what or ("iifname" if chain == "input" else "oifname", "!=", "lo")
        run(*self.command("nft", "add", "rule", *_TABLE.split(), chain, *which, "drop"))

    def _enter(self) -> None:
        """Move this thread to the host's namespace, so that its new sockets belong to the host."""
        with (_NAMES / self.namespace).open("rb") as namespace:
            libc = ctypes.CDLL(None, use_errno=True)
            if libc.setns(namespace.fileno(), _NEW_NETWORK):
                raise NoNetwork(os.strerror(ctypes.get_errno()))

    def close(self) -> None:
        self._stack.close()


@contextmanager
def network(*names: str, family: str = IPV4) -> Iterator[Sequence[Host]]:
    """Create hosts on a switch, with addresses of one family; remove them at the end."""
    prefix = f"temper-{secrets.token_hex(4)}"
    switch = f"{prefix}-switch"
    with ExitStack() as stack:
        _namespace(stack, switch)
        run("ip", "-n", switch, "link", "add", "name", "bridge", "type", "bridge")
        run("ip", "-n", switch, "link", "set", "bridge", "up")
        hosts: list[Host] = []
        for number, name in enumerate(names, start=1):
            address = f"{family}{number}"
            host = Host(name, address, f"{prefix}-{name}", switch)
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
    """Connect the host to the switch."""
    switch, inside = host.switch, host.namespace
    peer = ("peer", "name", "eth0", "netns", inside)
    run("ip", "-n", switch, "link", "add", "name", host.name, "type", "veth", *peer)
    run("ip", "-n", switch, "link", "set", host.name, "master", "bridge", "up")
    # without nodad, an IPv6 address is usable only after a check for duplicates
    length = ("/64", "nodad") if ":" in host.address else ("/24",)
    run("ip", "-n", inside, "address", "add", host.address + length[0], "dev", "eth0", *length[1:])
    run("ip", "-n", inside, "link", "set", "eth0", "up")
