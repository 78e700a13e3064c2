"""Child processes of Temper: llama-servers that load, crash, hang, and end after SIGTERM.

`Children` implements `loop.subprocess_exec`, so that `proxy.processes` runs unchanged. The result
of each start (`Start`) is drawn from the seed.
"""

import asyncio
import random
import signal
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, TypeAlias

from benchmarks.faults.material import CHAT
from benchmarks.faults.toxics import Caller, whole
from proxy.processes.launch import HOST as LOOPBACK
from tests.simulation.clock import CLOCK
from tests.simulation.engines import Engine, Engines
from tests.simulation.network import HOST, Network, context_of
from tests.simulation.scenario import Managed
from tests.simulation.slots import Caches, SlotEndpoints

# "stubborn" servers start well, but ignore SIGTERM; "damaged" means that the model file is damaged.
Start: TypeAlias = Literal["good", "stubborn", "crashes", "hangs", "damaged"]

_STARTS: tuple[Start, ...] = ("good", "stubborn", "crashes", "hangs", "damaged")
_WEIGHTS = (78, 7, 6, 5, 4)
_RESTARTABLE = (82, 7, 6, 5, 0)  # without "damaged", after which Temper does not restart
_SLOWEST_LOAD = 3.0  # seconds
_SLOWEST_END = 0.3
_NOTICE = 1.0  # seconds after which Temper has noticed that a model is loaded
_END = 0.1  # seconds after which a server has noticed that Temper has read its reply
_SHORTEST_DELAY = 0.25  # seconds between a crash and the restart
_FIRST_PORT = 20_000
_HANGS = 10.0  # seconds, more than `load_seconds`
_DAMAGE = "gguf_init_from_file: tensor data is not within the file bounds"  # a row of failures.toml
_LOADING = whole(b'{"error":{"code":503,"message":"Loading model"}}', status="503 Busy")
_REFUSED = whole(b'{"error":{"code":401,"message":"Invalid API Key"}}', status="401 Unauthorized")
_SLOTS = whole(b"[]")


class _Pipe(asyncio.ReadTransport):
    """The standard output of a child; it cannot be paused."""

    def pause_reading(self) -> None:
        """Do nothing: the output is short."""

    def resume_reading(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


class Child(asyncio.SubprocessTransport):
    """A llama-server of the model `name`; `host` is its name in the network."""

    def __init__(
        self, children: "Children", protocol: asyncio.SubprocessProtocol, pid: int, name: str
    ) -> None:
        super().__init__()
        self.protocol, self.name = protocol, name
        self.host, self.parent = f"{name}-{pid}", HOST.get()
        self.start: Start
        self.is_spared = False  # true while no event may kill it, because Temper would exit
        self.work: asyncio.Task[None]
        self._children = children
        self._pid = pid
        self._pipe = _Pipe()
        self._ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    @property
    def is_alive(self) -> bool:
        return not self._ended.done()

    def get_pid(self) -> int:
        return self._pid

    def get_returncode(self) -> int | None:
        return self._ended.result() if self._ended.done() else None

    def get_pipe_transport(self, fd: int) -> asyncio.BaseTransport | None:
        return self._pipe if fd == 1 else None

    def terminate(self) -> None:
        self._children.terminate(self)

    def close(self) -> None:
        """Do nothing: the pipes end with the process."""

    async def _wait(self) -> int:
        """Wait for the exit; `asyncio.subprocess.Process` calls this."""
        return await asyncio.shield(self._ended)

    def say(self, line: str) -> None:
        if self.is_alive:
            self.protocol.pipe_data_received(1, f"{line}\n".encode())

    def end(self, code: int) -> None:
        """End the process; its connections are reset."""
        if self.is_alive:
            self._ended.set_result(code)
            self.work.cancel()
            self._children.network.crash(self.host)
            self.protocol.pipe_connection_lost(1, None)
            self.protocol.process_exited()


@dataclass
class Children:
    """All child processes of a run.

    `faults` maps the name of a model to the times (begin, end) in which its requests may fail.
    """

    network: Network
    engines: Engines
    managed: Managed
    chance: random.Random
    problems: Counter[str]
    caches: Caches
    started: list[Child] = field(default_factory=list)
    faults: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    occurrences: Counter[str] = field(default_factory=Counter)
    is_closing: bool = False
    _crashed: dict[str, float] = field(default_factory=dict)

    def living(self) -> Iterator[Child]:
        return (child for child in self.started if child.is_alive)

    def start(
        self, protocol: asyncio.SubprocessProtocol, command: tuple[str, ...], env: dict[str, str]
    ) -> Child:
        """Start the llama-server with this command line."""
        name = command[command.index("-a") + 1]
        living = [child.name for child in self.living()]
        if name in living:
            self.problems[f"{name} was started while it was running"] += 1
        if len(living) >= self.managed.most_loaded:
            self.problems[f"{name} was started in addition to {living}"] += 1
        is_swapped = self.managed.ttl or len(self.managed.models) > self.managed.most_loaded
        if not is_swapped and CLOCK.now - self._crashed.get(name, -1.0) < _SHORTEST_DELAY:
            self.problems[f"{name} was restarted immediately after a crash"] += 1
        child = Child(self, protocol, _FIRST_PORT + len(self.started), name)
        self.started.append(child)
        (child.start,) = self._draw_start(child)
        self.occurrences["starts"] += 1
        protocol.connection_made(child)
        server = _LlamaServer(self.engines, env["LLAMA_API_KEY"])
        if self.managed.saves_caches:
            crash = partial(self._crash_by_itself, child)
            server.slots = SlotEndpoints(self.caches, name, command, crash)
        work = self._work(child, server)
        child.work = asyncio.get_running_loop().create_task(work, context=context_of(child.host))
        return child

    def _draw_start(self, child: Child) -> list[Start]:
        """Draw the result of a start.

        If workers share a server, its first start always succeeds: otherwise Temper would exit.
        """
        if not self.managed.is_shared:
            return self.chance.choices(_STARTS, _WEIGHTS)
        child.is_spared = all(other.parent != child.parent for other in self.started[:-1])
        return ["good"] if child.is_spared else self.chance.choices(_STARTS, _RESTARTABLE)

    def _victims(self, name: str) -> list[Child]:
        return [child for child in self.living() if child.name == name and not child.is_spared]

    def kill(self, pid: int, _number: int = signal.SIGKILL) -> None:
        """Kill a process; replaces `proxy.systems.kill_tree`."""
        self.started[pid - _FIRST_PORT].end(-signal.SIGKILL)

    def end_orphans(self, parent: str) -> None:
        """Kill the children of a killed process, as `proxy.processes.parent_death` does."""
        for child in [child for child in self.living() if child.parent == parent]:
            self.note_fault(child.name)
            self._crashed.pop(child.name)  # the next process of Temper may start it immediately
            child.end(-signal.SIGKILL)

    def crash(self, name: str) -> None:
        """Kill the llama-server of a model, if it is running."""
        for child in self._victims(name):
            self.occurrences["killed servers"] += 1
            self.note_fault(name)
            child.end(-signal.SIGKILL)

    def _crash_by_itself(self, child: Child) -> None:
        self.note_fault(child.name)
        child.end(-signal.SIGSEGV)

    async def stall(self, name: str, seconds: float) -> None:
        """Let the llama-server of a model hang for some seconds, if it is running."""
        for child in self._victims(name):
            self.occurrences["stalled servers"] += 1
            self.note_fault(name, seconds)
            self.network.stall(child.host)
            await asyncio.sleep(seconds)
            self.network.resume(child.host)

    def terminate(self, child: Child) -> None:
        """Handle SIGTERM, and check that the child has no running requests."""
        self.occurrences["stops"] += 1
        if child.host in self.network.stalled:
            return  # a stalled process ends only with SIGKILL
        if not self.is_closing:
            self.network.call_later(_END, partial(self._check_idle, child, self._playing(child)))
        if child.start != "stubborn":
            seconds = _END + self.chance.random() * _SLOWEST_END
            self.network.call_later(seconds, partial(child.end, 0))

    def _playing(self, child: Child) -> set[int]:
        """Return the numbers of the generations that run in a child."""
        playing = self.engines.open_generations().items()
        return {number for number, host in playing if host == child.host}

    def _check_idle(self, child: Child, before: set[int]) -> None:
        """Check that the generations that ran at the time of SIGTERM (`before`) have ended."""
        if running := before & self._playing(child):
            self.problems[f"{child.name} was stopped with {len(running)} running requests"] += 1

    def note_fault(self, name: str, seconds: float = 0.0) -> None:
        """Note that a server crashes (0 seconds), or does not answer for these seconds."""
        if not seconds:
            self._crashed[name] = CLOCK.now
        self.faults.setdefault(name, []).append((CLOCK.now, CLOCK.now + seconds))

    async def _work(self, child: Child, server: "_LlamaServer") -> None:
        await asyncio.sleep(self.chance.random() * _SLOWEST_LOAD)
        child.say("build: 1 (simulated)")
        match child.start:
            case "crashes":
                self.occurrences["failed starts"] += 1
                self.note_fault(child.name)
                child.say("terminate called after throwing an instance of 'std::exception'")
                child.end(-signal.SIGABRT)
            case "damaged":
                self.occurrences["failed starts"] += 1
                self.note_fault(child.name)
                child.say(_DAMAGE)
                child.end(1)
            case "hangs":
                self.occurrences["hung starts"] += 1
                self.note_fault(child.name, _HANGS)
            case _:
                port = child.get_pid()
                await asyncio.start_server(server.serve, LOOPBACK, port)
                child.say(f"main: server is listening on http://{LOOPBACK}:{port}")
                await asyncio.sleep(self.chance.random() * _SLOWEST_LOAD / 2)
                server.is_loaded = True
                await asyncio.sleep(_NOTICE)
                child.is_spared = False


class _LlamaServer(Engine):
    """The HTTP API of a child; it requires the API key with which the child was started."""

    def __init__(self, engines: Engines, key: str) -> None:
        super().__init__(engines)
        self.is_loaded = False
        self.slots: SlotEndpoints | None = None
        self._authorization = f"authorization: bearer {key}".lower().encode()
        self._documents["/slots"] = _SLOTS

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        caller = Caller(reader, writer)
        try:
            while not writer.is_closing() and (request := await caller.request()):
                caller.requests.clear()
                await self._respond(caller, request)
        except (OSError, asyncio.IncompleteReadError):  # the client has disconnected
            pass
        finally:
            writer.close()

    async def _respond(self, caller: Caller, request: bytes) -> None:
        head = request.partition(b"\r\n\r\n")[0].lower()
        path = head.decode().split(" ", 2)[1]
        if not self.is_loaded:
            await caller.send(_LOADING)
        elif path != "/health" and self._authorization not in head:
            await caller.send(_REFUSED)
        elif path == CHAT:
            if self.slots is not None:
                self.slots.use()
            await self._play(caller, request)
        elif self.slots is None or not (reply := await self.slots.respond(path, request)):
            await self._show(caller, path)
        else:
            await caller.send(reply)
