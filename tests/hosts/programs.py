"""The programs on the hosts: Tempers, engines, a balancer, a store, and clients."""

import os
import socket
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import httpx

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from tests.fakes.paced_engine import PacedEngine
from tests.fakes.quick_start import COMMAND
from tests.fakes.sockets import Listening, listening
from tests.hosts.network import Host
from tests.timeouts import TIMEOUT_SECONDS

PORT, KEY = 8367, "sk-of-the-hosts"
# API dialect -> its path, and the text with which a successful stream ends
DIALECTS = {
    "chat": ("/v1/chat/completions", b"data: [DONE]"),
    "messages": ("/v1/messages", b"event: message_stop"),
    "responses": ("/v1/responses", b"event: response.completed"),
    "ollama": ("/api/chat", b'"done":true'),
}
LOST, STALL = 2, 2  # seconds, in the settings below
SOON = 40.0  # seconds within which a fault is noticed, even on a busy machine
NEVER = 600  # seconds that a request would take if the fault were not noticed
SETTINGS = {
    "TEMPER_SERVER__API_KEY": KEY,
    "TEMPER_SERVER__PORT": str(PORT),
    "TEMPER_SERVER__STALL_SECONDS": str(STALL),
    "TEMPER_SERVER__KEEP_ALIVE_SECONDS": "1",
    "TEMPER_BACKEND__KIND": "openai",
    "TEMPER_BACKEND__CONNECT_SECONDS": "1",
    "TEMPER_BACKEND__LOST_SECONDS": str(LOST),
    "TEMPER_BACKEND__FIRST_BYTE_SECONDS": str(NEVER),
    "TEMPER_BACKEND__IDLE_SECONDS": str(NEVER),
}
_FORGET = struct.pack("ii", 1, 0)  # SO_LINGER: closed sockets vanish at once
_PROBED = [
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 3),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 2),
]
_LOOK = 0.02


def until(is_so: Callable[[], bool]) -> None:
    """Wait until a condition is true."""
    end = time.monotonic() + SOON
    while not is_so():
        assert time.monotonic() < end, "the condition never became true"
        time.sleep(_LOOK)


@contextmanager
def running(host: Host, *command: str, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program on a host; it is killed at the end, because its host may be unreachable."""
    surroundings = {**os.environ, **environment}
    with subprocess.Popen(
        host.command(*command), env=surroundings, stdout=subprocess.PIPE
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@dataclass
class Engine:
    """An engine on a host."""

    host: Host
    app: PacedEngine
    url: str
    _server: Listening
    _call: Callable[[Callable[[], None]], None]

    def reboot(self) -> None:
        """Drop all connections silently, as after a power failure."""
        self.host.cut()
        self._call(self._forget)
        self.host.restore()

    def _forget(self) -> None:
        for connection in list(self._server.state.connections):
            sock: socket.socket = connection.transport.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _FORGET)
            connection.transport.abort()


@contextmanager
def engine_on(host: Host) -> Iterator[Engine]:
    app = PacedEngine()
    with (
        host.event_loop() as portal,
        portal.wrap_async_context_manager(listening(app, host.address, 8080)) as server,
    ):
        engine = Engine(host, app, server.url, server, portal.call)
        yield engine
        engine.reboot()  # otherwise the server would wait for vanished clients


@dataclass(frozen=True)
class Client:
    """A client on a host, of a Temper or of the balancer."""

    host: Host
    http: httpx.Client

    def ask(
        self, text: str = "Hi", *, stream: bool = False, dialect: str = "chat", **headers: str
    ) -> "PendingResponse":
        """Send a request on the host, and read the response in the background."""
        answer = PendingResponse(dialect)
        reading = self.host.later(self._read, answer, text, headers, stream=stream)
        answer.reading = reading.result
        return answer

    def get(self, path: str) -> httpx.Response:
        return self.host.later(self.http.get, path).result(SOON)

    def _read(
        self, answer: "PendingResponse", text: str, headers: dict[str, str], *, stream: bool
    ) -> "PendingResponse":
        messages: JsonValue = [{"role": "user", "content": text}]
        key = "input" if answer.dialect == "responses" else "messages"
        body: JsonObject = {"model": "m", key: messages, "stream": stream}
        if answer.dialect == "messages":
            body["max_tokens"] = 8000
        path, _ = DIALECTS[answer.dialect]
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        with self.http.stream("POST", path, json=body, headers=named) as response:
            answer.status, answer.headers = response.status_code, response.headers
            try:
                for piece in response.iter_bytes():
                    answer.body += piece
            except httpx.TransportError as error:
                answer.broke = repr(error)
        return answer


@dataclass
class PendingResponse:
    """A response as it arrives; `broke` is the error that ended its connection, if any."""

    dialect: str = "chat"
    status: int = 0
    body: bytes = b""
    broke: str = ""
    headers: httpx.Headers = field(default_factory=httpx.Headers)
    reading: Callable[[float], "PendingResponse"] | None = None

    def ended(self) -> "PendingResponse":
        """Wait at most `SOON` seconds for its end."""
        assert self.reading is not None
        return self.reading(SOON)

    def begun(self) -> "PendingResponse":
        """Wait for the first content of a stream."""
        until(lambda: b"word " in self.body)
        return self

    @property
    def words(self) -> int:
        """Return how many words of the engine have arrived."""
        return self.body.count(b"word ")

    @property
    def error(self) -> JsonObject:
        """Return the error in the body or at the end of the stream, {} without one."""
        # a slow response that is not streamed begins with spaces
        data = self.body.split(b"data: ")[-1] if b"data: " in self.body else self.body.lstrip()
        if self.dialect == "ollama":
            data = self.body.splitlines()[-1]
        document = json.parse(data) if data.startswith(b"{") else {}
        assert isinstance(document, dict)
        if isinstance(response := document.get("response"), dict):  # `response.failed`
            document = response
        error = document.get("error") or {}
        return error if isinstance(error, dict) else {"message": error}

    @property
    def is_whole(self) -> bool:
        """Return whether it is a complete successful response."""
        return self.status == httpx.codes.OK and self.is_done and not self.broke

    @property
    def is_done(self) -> bool:
        """Return whether it has the end of a successful response, streamed or not."""
        _, end = DIALECTS[self.dialect]
        last_event = self.body.rstrip().rsplit(b"\n\n", 1)[-1]
        return end in last_event or b'"chat.completion"' in self.body


@contextmanager
def client_on(host: Host, url: str) -> Iterator[Client]:
    """Send a request from a host."""
    key = {"authorization": f"Bearer {KEY}"}
    # TCP keep-alive probes, so that a client notices that its server has vanished
    transport = httpx.HTTPTransport(socket_options=_PROBED)
    with httpx.Client(
        base_url=url, headers=key, timeout=TIMEOUT_SECONDS, transport=transport
    ) as client:
        yield Client(host, client)
        host.restore()


@contextmanager
def temper_on(host: Host, *engines: Engine | str, **settings: str) -> Iterator[str]:
    """Run Temper in front of engines (a string is the URL of one); yield the URL of Temper."""
    named = (engine if isinstance(engine, str) else engine.url for engine in engines)
    urls = [part for url in named for part in ("--backend-url", url)]
    command = (*COMMAND, "serve", "--host", host.address, "--json", *urls)
    with running(host, *command, **{**SETTINGS, **settings}) as process:
        assert process.stdout is not None
        announced = json.parse(process.stdout.readline())
        assert isinstance(announced, dict)
        yield str(announced["url"])


def connections(host: Host) -> int:
    """Return how many connections clients have to the Temper on a host."""
    listed = subprocess.run(
        host.command("ss", "-Htn", "state", "established", f"sport = :{PORT}"),
        check=True,
        capture_output=True,
        text=True,
    )
    return len(listed.stdout.splitlines())
